/** Variables of an environment: their names, and one value at a time for whoever asks to see it. */
import * as Effect from "effect/Effect"
import { useState } from "react"
import { Env } from "#src/env/api.ts"
import { client } from "../api/client.ts"
import { services } from "../api/services.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Code, Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { RowMenu } from "../parts/row-menu.tsx"
import { Table } from "../parts/table.tsx"
import type { ServiceProps } from "./service.tsx"

/** Names alone: of the values the specification has fingerprints. */
const keysOf = (spec: unknown): ReadonlyArray<string> =>
  typeof spec === "object" && spec !== null && "variables" in spec && typeof spec.variables === "object"
    ? Object.keys(spec.variables ?? {}).sort()
    : []

type Asked = { readonly what: "set" | "delete"; readonly key: string } | undefined

const applies =
  "The app of the environment gets it at once: new instances are started, and the old ones end when those are healthy."

export const VariablesPanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project }
  const query = { environment: resource.environment ?? "production" }
  const detail = useAnswer(
    `variables ${resource.uid}`,
    () => client.resources.get({ params: { orgId: org.slug, uid: resource.uid } }),
    resource.revision
  )
  const { acting, failure, act, setFailure } = useAct()
  const [shown, setShown] = useState<{ readonly key: string; readonly value: string }>()
  const [asked, setAsked] = useState<Asked>()
  const [key, setKey] = useState("")
  const [value, setValue] = useState("")

  // The operation answers all of them: the others are let go of at once.
  const show = (wanted: string) =>
    void act(() =>
      Effect.map(services.env.list({ params, query }), (all) => all.find(({ key }) => key === wanted))
    ).then(setShown)
  const ask = (next: Asked) => {
    setFailure(undefined)
    setShown(undefined)
    setKey(next?.key ?? "")
    setValue("")
    setAsked(next)
  }
  const done = (answer: unknown) => answer !== undefined && ask(undefined)
  const dialog = { busy: acting, failure, close: () => ask(undefined) }

  return (
    <>
      <h2>Variables</h2>
      <Panel>
        <Answered of={detail} what="variables">
          {({ body }) => (
            <Table
              of={keysOf(body.spec)}
              keyOf={(name) => name}
              empty={
                <>
                  <p>There is none yet. Add one here, in a manifest, or with</p>
                  <Code>{`echo VALUE | svc env set ${project} NAME`}</Code>
                </>
              }
              columns={[
                { head: "Name", look: "code", cell: (name) => name },
                {
                  head: "Value",
                  look: "code",
                  cell: (name) =>
                    shown?.key === name ? (
                      <span className="whitespace-pre-wrap">{shown.value}</span>
                    ) : (
                      <span className="text-faint">hidden</span>
                    )
                },
                {
                  head: "",
                  says: "Action",
                  look: "actions",
                  cell: (name) => (
                    <Gated by={Env.endpoints.list} what="Reading it">
                      <span className="flex justify-end gap-1">
                        <Button
                          busy={acting}
                          aria-label={`${shown?.key === name ? "Hide" : "Show"} ${name}`}
                          onClick={() => (shown?.key === name ? setShown(undefined) : show(name))}
                        >
                          {shown?.key === name ? "Hide" : "Show"}
                        </Button>
                        <RowMenu
                          label={name}
                          actions={[
                            {
                              name: "Change",
                              by: Env.endpoints.set,
                              run: () => ask({ what: "set", key: name })
                            },
                            {
                              name: "Delete",
                              by: Env.endpoints.delete,
                              danger: true,
                              run: () => ask({ what: "delete", key: name })
                            }
                          ]}
                        />
                      </span>
                    </Gated>
                  )
                }
              ]}
            />
          )}
        </Answered>
      </Panel>
      <div className="mt-3">
        <Gated by={Env.endpoints.set} what="Adding one">
          <Button onClick={() => ask({ what: "set", key: "" })}>Add a variable</Button>
        </Gated>
      </div>
      {failure !== undefined && asked === undefined && <Problem failure={failure} />}
      <Confirm
        {...dialog}
        open={asked?.what === "set"}
        title={asked?.key ? `Change ${asked.key}` : "Add a variable"}
        says={`Others stay as they are. ${applies}`}
        action="Set it"
        ready={key !== ""}
        confirmed={() =>
          void act(() => services.env.set({ params, query, payload: { vars: [{ key, value }] } })).then(done)
        }
      >
        {asked?.key === "" && (
          <Field label="Name" value={key} changed={setKey} autoComplete="off" spellCheck={false} />
        )}
        <Field label="Value" type="password" value={value} changed={setValue} autoComplete="new-password" />
      </Confirm>
      <Confirm
        {...dialog}
        open={asked?.what === "delete"}
        look="danger"
        title={`Delete ${asked?.key ?? ""}`}
        says={`Its value is gone for good. ${applies}`}
        action="Delete it"
        confirmed={() =>
          void act(() => services.env.delete({ params: { ...params, key }, query })).then(done)
        }
      />
    </>
  )
}
