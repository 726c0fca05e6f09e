/** Who may see the environments of a project at their addresses, and who is invited. */
import { useState } from "react"
import type { AccessMode } from "#schemas/access-policy.ts"
import { Access } from "#src/visitors/api.ts"
import { idempotent } from "../api/call.ts"
import { access } from "../api/domains.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Choice } from "../parts/choice.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { inputClass } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { menuColumn, RowMenu } from "../parts/row-menu.tsx"
import { Table } from "../parts/table.tsx"
import { At } from "../parts/time.tsx"

type Mode = AccessMode
const modes: ReadonlyArray<readonly [Mode, string]> = [
  ["public", "everybody"],
  ["authenticated", "whoever has an account"],
  ["organization", "members of the organization"],
  ["invite_only", "invited addresses"]
]
const words: ReadonlyMap<string, string> = new Map(modes)

export const AccessPanel = ({ project }: { readonly project: string }) => {
  const { org } = useCaller()
  const { all } = useLive()
  const params = { orgId: org.slug, projectId: project }
  const policy = all.find((one) => one.kind === "AccessPolicy" && one.project === project)
  const answer = useAnswer(`access ${org.slug} ${project}`, () => access.get({ params }), policy?.revision)
  const { asked, ask, run, dialog } = useDecision<"set">(answer.again)
  const [mode, setMode] = useState<Mode>("public")
  const [previewMode, setPreviewMode] = useState<Mode | "inherit">("inherit")
  const shown = answer.value
  return (
    <>
      <div className="mt-6 mb-2 flex flex-wrap items-center justify-between gap-2">
        <h2 className="m-0!">Who may see it</h2>
        <Gated by={Access.endpoints.set} what="Changing it">
          <Button
            disabled={shown === undefined}
            onClick={() => {
              setMode(shown?.mode ?? "public")
              setPreviewMode(shown?.previewMode ?? "inherit")
              ask("set")
            }}
          >
            Change
          </Button>
        </Gated>
      </div>
      <Panel>
        <Answered of={answer} what="who may see it">
          {({ effective, environments, status }) => (
            <>
              <Table
                of={Object.entries(effective)}
                keyOf={([environment]) => environment}
                label="Who may see it"
                empty="The project has no environment."
                columns={[
                  { head: "Environment", cell: ([environment]) => environment },
                  { head: "Seen by", cell: ([, mode]) => words.get(mode) ?? mode },
                  {
                    head: "Said of",
                    cell: ([environment]) => (
                      <span className="text-soft">
                        {Object.hasOwn(environments, environment) ? "this environment" : "the project"}
                      </span>
                    )
                  }
                ]}
              />
              {status !== null && status !== "ready" && (
                <p className="border-t border-line px-3.5 py-2 text-wait">
                  It is not in force at every address yet.
                </p>
              )}
            </>
          )}
        </Answered>
      </Panel>
      <Confirm
        {...dialog}
        open={asked === "set"}
        title={`Who may see ${project}`}
        says="It holds within seconds, also for those who look at it now. Environments with a mode of their own keep it."
        action="Change it"
        confirmed={() =>
          run(() =>
            access.set({
              params,
              payload: { mode, previewMode, environments: shown?.environments ?? {} }
            })
          )
        }
      >
        <Choice label="Environments" value={mode} of={modes} changed={setMode} />
        <Choice<Mode | "inherit">
          label="Previews"
          value={previewMode}
          of={[["inherit", "the same"], ...modes]}
          changed={setPreviewMode}
        />
      </Confirm>
      <Invited project={project} />
    </>
  )
}

const Invited = ({ project }: { readonly project: string }) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project }
  const answer = useAnswer(`invited ${org.slug} ${project}`, () => access.listInvitations({ params }))
  const { acting, failure, act } = useAct()
  const [email, setEmail] = useState("")
  return (
    <>
      <h2>Invited addresses</h2>
      <Gated by={Access.endpoints.invite} what="Inviting">
        <form
          className="mb-3 flex flex-wrap gap-2"
          onSubmit={(event) => {
            event.preventDefault()
            void act(() => access.invite({ params, headers: idempotent(), payload: { email } })).then(
              (made) => {
                if (made === undefined) return
                setEmail("")
                answer.again()
              }
            )
          }}
        >
          <input
            type="email"
            required
            aria-label="E-mail address"
            placeholder="E-mail address"
            value={email}
            onChange={(event) => setEmail(event.target.value)}
            className={`${inputClass} min-w-0 flex-1 basis-40 sm:max-w-72`}
          />
          <Button type="submit" busy={acting}>
            Invite
          </Button>
        </form>
      </Gated>
      {failure !== undefined && (
        <div className="mb-3">
          <Problem failure={failure} />
        </div>
      )}
      <Panel>
        <Answered of={answer} what="invited addresses">
          {(invited) => (
            <Table
              of={invited}
              keyOf={({ id }) => id}
              label="Invited addresses"
              empty="Nobody is invited. Accounts with an invited address see environments that only those may see; no mail is sent."
              columns={[
                { head: "Address", look: "written", cell: ({ email }) => email },
                { head: "Since", cell: ({ createdAt }) => <At at={createdAt} /> },
                {
                  ...menuColumn,
                  cell: ({ id, email }) => (
                    <RowMenu
                      label={email}
                      actions={[
                        {
                          name: "Take it back",
                          by: Access.endpoints.revokeInvitation,
                          danger: true,
                          run: () =>
                            void act(() =>
                              access.revokeInvitation({ params: { ...params, invitationId: id } })
                            ).then(answer.again)
                        }
                      ]}
                    />
                  )
                }
              ]}
            />
          )}
        </Answered>
      </Panel>
    </>
  )
}
