/** The custom domains of a project, and another one. */
import { useState } from "react"
import { Domains } from "#src/domains/api.ts"
import { domains } from "../api/domains.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Choice } from "../parts/choice.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Link } from "../parts/link.tsx"
import { Code, Panel } from "../parts/panel.tsx"
import { Table } from "../parts/table.tsx"
import { go, pathTo } from "../router.ts"

export const DomainsPanel = ({ project }: { readonly project: string }) => {
  const { org } = useCaller()
  const { all } = useLive()
  const params = { orgId: org.slug, projectId: project }
  const of = all.filter((one) => one.project === project)
  const answer = useAnswer(
    `domains ${org.slug} ${project}`,
    () => domains.list({ params }),
    of
      .filter(({ kind }) => kind === "Domain")
      .map(({ revision }) => revision)
      .join(" ")
  )
  const { asked, ask, run, dialog } = useDecision<"add">(answer.again)
  const [hostname, setHostname] = useState("")
  const [environment, setEnvironment] = useState("production")
  const environments = of
    .filter(({ kind, name }) => kind === "Environment" && name !== "preview")
    .map(({ name }) => [name, name] as const)
  return (
    <>
      <div className="mt-6 mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">Custom domains</h2>
        <Gated by={Domains.endpoints.add} what="Adding one">
          <Button
            onClick={() => {
              setHostname("")
              ask("add")
            }}
          >
            Add a domain
          </Button>
        </Gated>
      </div>
      <Panel>
        <Answered of={answer} what="domains">
          {(list) => (
            <Table
              of={list}
              keyOf={({ id }) => id}
              label="Custom domains"
              empty={
                <>
                  <p>There is none. Add one here, or with</p>
                  <Code>{`svc domains add ${project} www.example.com`}</Code>
                  <p className="mt-3">In a manifest, below the project:</p>
                  <Code>{"domains: [www.example.com]"}</Code>
                </>
              }
              columns={[
                {
                  head: "Domain",
                  look: "written",
                  cell: ({ id, displayName }) => (
                    <Link to={pathTo(org.slug, "resources", id)} className="font-medium hover:underline">
                      {displayName}
                    </Link>
                  )
                },
                { head: "Environment", cell: ({ environment }) => environment },
                {
                  head: "State",
                  look: "written",
                  cell: ({ status, verificationErrors }) => (
                    <>
                      <span
                        className={
                          status === "failed" ? "text-bad" : status === "active" ? "text-ok" : "text-wait"
                        }
                      >
                        {status}
                      </span>{" "}
                      <span className="text-soft">{verificationErrors}</span>
                    </>
                  )
                },
                { head: "Sent on to", look: "written", cell: ({ redirectTo }) => redirectTo ?? "–" }
              ]}
            />
          )}
        </Answered>
      </Panel>
      <Confirm
        {...dialog}
        open={asked === "add"}
        title="Add a domain"
        says="Its page says then which DNS records to create. Once they are seen, a certificate is fetched and the app answers there."
        action="Add it"
        ready={hostname.includes(".")}
        confirmed={() =>
          run(
            (headers) => domains.add({ params, headers, payload: { hostname, environment } }),
            ({ id }) => go(pathTo(org.slug, "resources", id))
          )
        }
      >
        <Field
          label="Host name"
          value={hostname}
          changed={setHostname}
          placeholder="www.example.com"
          autoComplete="off"
          spellCheck={false}
        />
        <Choice
          label="Environment"
          value={environment}
          of={environments.length === 0 ? [["production", "production"] as const] : environments}
          changed={setEnvironment}
        />
      </Confirm>
    </>
  )
}
