/** A server's password: replaced, and shown this once. It is in no address, no storage, and gone with the page. */
import type * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import { useState } from "react"
import { Caches } from "#src/caches/api.ts"
import { Database } from "#src/databases/api.ts"
import { idempotent } from "../api/call.ts"
import { apiUrl } from "../api/place.ts"
import { services } from "../api/services.ts"
import { useAct } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { Gated } from "../parts/gated.tsx"
import { Panel } from "../parts/panel.tsx"
import type { ServiceProps } from "./service.tsx"

interface Shown {
  readonly connectionString: string | null
}

const Credentials = ({
  by,
  name,
  rotate
}: {
  readonly by: { readonly annotations: Context.Context<never> }
  readonly name: string
  readonly rotate: () => Effect.Effect<Shown, unknown>
}) => {
  const { acting, failure, act, setFailure } = useAct()
  const [asked, setAsked] = useState(false)
  const [shown, setShown] = useState<string>()
  const [copied, setCopied] = useState(false)
  return (
    <>
      <h2>Connection</h2>
      <Panel>
        <div className="flex flex-wrap items-center justify-between gap-3 px-3.5 py-3">
          {shown === undefined ? (
            <p className="text-soft">
              The password was shown when it was made. A new one is shown once, with how to connect.
            </p>
          ) : (
            <div className="min-w-0">
              <p className="mb-1">This is shown once: copy it now.</p>
              <code className="font-mono text-[12.5px] wrap-anywhere">{shown}</code>
            </div>
          )}
          <div className="flex gap-2">
            {shown !== undefined && (
              <>
                {"clipboard" in navigator && (
                  <Button
                    look="main"
                    onClick={() =>
                      void navigator.clipboard.writeText(shown).then(
                        () => setCopied(true),
                        () => setCopied(false)
                      )
                    }
                  >
                    {copied ? "Copied" : "Copy"}
                  </Button>
                )}
                <Button onClick={() => setShown(undefined)}>Hide</Button>
              </>
            )}
            <Gated by={by} what="A new password">
              <Button
                onClick={() => {
                  setFailure(undefined)
                  setAsked(true)
                }}
              >
                New password
              </Button>
            </Gated>
          </div>
        </div>
        <p className="border-t border-line px-3.5 py-2 text-[13px] text-soft">
          Clients verify the server with{" "}
          <a href={`${apiUrl}/v1/ca.pem`} className="text-accent underline" download="ca.pem">
            the certificate of its authority
          </a>
          .
        </p>
      </Panel>
      <Confirm
        open={asked}
        title={`New password for ${name}`}
        says="The old password stops working at once: whatever uses it is refused until it has the new one. Apps of the platform get it by themselves."
        action="Replace it"
        look="danger"
        busy={acting}
        failure={failure}
        close={() => setAsked(false)}
        confirmed={() =>
          void act(rotate).then((answer) => {
            if (answer === undefined) return
            setAsked(false)
            setCopied(false)
            setShown(answer.connectionString ?? undefined)
          })
        }
      />
    </>
  )
}

export const CachePanel = ({ resource, project }: ServiceProps) => {
  const params = { orgId: useCaller().org.slug, projectId: project, cacheId: resource.uid }
  return (
    <Credentials
      by={Caches.endpoints.rotateCredentials}
      name={resource.name}
      rotate={() => services.caches.rotateCredentials({ params, headers: idempotent() })}
    />
  )
}

export const DatabasePanel = ({ resource, project }: ServiceProps) => {
  const params = { orgId: useCaller().org.slug, projectId: project }
  const query = { environment: resource.environment ?? "production" }
  return (
    <Credentials
      by={Database.endpoints.rotatePassword}
      name={resource.name}
      rotate={() => services.database.rotatePassword({ params, query, headers: idempotent() })}
    />
  )
}
