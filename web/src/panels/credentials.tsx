/** How to connect to a server: its address, and a new password that is shown this once. */
import type * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import { type ReactNode, useState } from "react"
import { apiUrl } from "../api/place.ts"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Gated } from "../parts/gated.tsx"
import { Panel } from "../parts/panel.tsx"
import { Secret } from "../parts/secret.tsx"

interface Rotated {
  readonly connectionString: string | null
}

export const Credentials = ({
  by,
  name,
  facts,
  rotate
}: {
  readonly by: { readonly annotations: Context.Context<never> }
  readonly name: string
  /** Where it is, by name. */
  readonly facts: ReadonlyArray<readonly [name: string, value: ReactNode]>
  readonly rotate: () => Effect.Effect<Rotated, unknown>
}) => {
  const { asked, ask, run, dialog } = useDecision<"rotate">()
  const [shown, setShown] = useState<string>()
  return (
    <>
      <h2>Connection</h2>
      {shown !== undefined && (
        <div className="mb-3">
          <Secret value={shown} what={`How to connect to ${name}`} hide={() => setShown(undefined)} />
        </div>
      )}
      <Panel>
        {facts.length > 0 && (
          <dl className="grid gap-x-6 gap-y-2 border-b border-line px-3.5 py-3 grid-cols-2 lg:grid-cols-4">
            {facts.map(([what, value]) => (
              <div key={what} className="min-w-0">
                <dt className="text-[13px] text-soft">{what}</dt>
                <dd className="font-mono text-[12.5px] wrap-anywhere">{value}</dd>
              </div>
            ))}
          </dl>
        )}
        <div className="flex flex-wrap items-center justify-between gap-3 px-3.5 py-3">
          <p className="min-w-0 flex-1 basis-72 text-soft">
            The password was shown when it was made. A new one is shown once, with how to connect. Clients
            verify the server with{" "}
            <a href={`${apiUrl}/v1/ca.pem`} className="text-accent underline" download="ca.pem">
              the certificate of its authority
            </a>
            .
          </p>
          <Gated by={by} what="A new password">
            <Button onClick={() => ask("rotate")}>New password</Button>
          </Gated>
        </div>
      </Panel>
      <Confirm
        {...dialog}
        open={asked === "rotate"}
        title={`New password for ${name}`}
        says="The old password stops working at once: whatever uses it is refused until it has the new one. Apps of the platform get it by themselves."
        action="Replace it"
        look="danger"
        confirmed={() => run(rotate, ({ connectionString }) => setShown(connectionString ?? undefined))}
      />
    </>
  )
}
