/** A custom domain: what its DNS has to say, whether it is served, and where it leads. */
import { useState } from "react"
import { Domains } from "#src/domains/api.ts"
import { domains } from "../api/domains.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Code } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { At } from "../parts/time.tsx"
import type { ServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

const states = {
  pending_dns: "waits for DNS",
  pending_ssl: "waits for its certificate",
  active: "active",
  failed: "failed"
} as const

export const DomainPanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project, domainId: resource.uid }
  const answer = useAnswer(`domain ${resource.uid}`, () => domains.get({ params }), resource.revision)
  const { asked, ask, run, acting, failure, dialog } = useDecision<"remove" | "change">(answer.again)
  const [redirect, setRedirect] = useState("")
  const [hsts, setHsts] = useState("0")
  const seconds = Number(hsts)
  return (
    <>
      <Answered of={answer} what="the domain">
        {({ body: domain }) => (
          <>
            <Tiles>
              <Tile value={states[domain.status]} says="state" bad={domain.status === "failed"} />
              <Tile value={domain.environment} says="environment that answers" />
              <Tile value={domain.redirectTo ?? "no"} says="sent on to another domain" />
              <Tile
                value={
                  domain.certificateExpiresAt === null ? "none yet" : <At at={domain.certificateExpiresAt} />
                }
                says="certificate, until"
              />
            </Tiles>
            {domain.verificationErrors !== null && (
              <p className="mt-2 text-wait wrap-anywhere">{domain.verificationErrors}</p>
            )}
            <div className="mt-3 flex flex-wrap gap-2">
              <Gated by={Domains.endpoints.check} what="Checking it">
                <Button busy={acting} onClick={() => run(() => domains.check({ params }))}>
                  Check now
                </Button>
              </Gated>
              {domain.status === "active" && (
                <a
                  href={`https://${domain.hostname}/`}
                  target="_blank"
                  rel="noreferrer"
                  className="inline-flex min-h-8 items-center rounded-md border border-line bg-panel px-3 py-1 font-medium hover:border-faint"
                >
                  Open it
                </a>
              )}
              <Gated by={Domains.endpoints.update} what="Changing it">
                <Button
                  onClick={() => {
                    setRedirect(domain.redirectTo ?? "")
                    setHsts(String(domain.hstsSeconds))
                    ask("change")
                  }}
                >
                  Change
                </Button>
              </Gated>
              <Gated by={Domains.endpoints.remove} what="Removing it">
                <Button className="text-bad!" onClick={() => ask("remove")}>
                  Remove
                </Button>
              </Gated>
            </div>
            <h2>DNS records to create</h2>
            <Code>{domain.instructions}</Code>
          </>
        )}
      </Answered>
      {failure !== undefined && <Problem failure={failure} />}
      <Confirm
        {...dialog}
        open={asked === "change"}
        title={`Change ${resource.name}`}
        says="Browsers remember Strict-Transport-Security for as long as it says: until then they refuse the domain without TLS."
        action="Change it"
        ready={Number.isInteger(seconds) && seconds >= 0}
        confirmed={() =>
          run(() =>
            domains.update({
              params,
              headers: {},
              payload: { redirectTo: redirect === "" ? null : redirect, hstsSeconds: seconds }
            })
          )
        }
      >
        <Field
          label="Send requests on to this domain"
          value={redirect}
          changed={setRedirect}
          hint="Another domain of this environment. Empty: the app answers."
        />
        <Field
          label="Strict-Transport-Security, seconds"
          value={hsts}
          changed={setHsts}
          inputMode="numeric"
          hint="0: it is not sent."
        />
      </Confirm>
      <Confirm
        {...dialog}
        open={asked === "remove"}
        look="danger"
        title={`Remove ${resource.name}`}
        says="Requests to it are not answered any more, and its certificate is thrown away. The app stays at its other addresses."
        action="Remove it"
        confirmed={() => run(() => domains.remove({ params, headers: {} }))}
      />
    </>
  )
}
