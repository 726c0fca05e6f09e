/** Who belongs to the organization, in which role, and who is invited. */
import { useState } from "react"
import type { Role } from "#schemas/kind.ts"
import { Invitations } from "#src/organizations/api/invitations.ts"
import { Members } from "#src/organizations/api/members.ts"
import { client } from "../api/client.ts"
import { organization } from "../api/organization.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Choice } from "../parts/choice.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { useDecision } from "../parts/decision.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Head, Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { menuColumn, RowMenu } from "../parts/row-menu.tsx"
import { Table } from "../parts/table.tsx"
import { At, In } from "../parts/time.tsx"

type Asked =
  | { readonly what: "invite" }
  | { readonly what: "role" | "remove"; readonly id: string; readonly name: string }

const roles: ReadonlyArray<readonly [Role, string]> = [
  ["member", "member: sees everything, changes little"],
  ["admin", "admin: changes and operates everything but billing"],
  ["owner", "owner: deletes data, makes owners, pays"]
]
const invitable: ReadonlyArray<readonly ["member" | "admin", string]> = [
  ["member", "member: sees everything, changes little"],
  ["admin", "admin: changes and operates everything but billing"]
]

export const MembersPage = () => {
  const { org, userId } = useCaller()
  const params = { orgId: org.slug }
  const members = useAnswer(`members ${org.slug}`, () => client.members.list({ params }))
  const invitations = useAnswer(`invitations ${org.slug}`, () => organization.invitations.list({ params }))
  const { asked, ask, run, failure, dialog } = useDecision<Asked>(() => {
    members.again()
    invitations.again()
  })
  const [email, setEmail] = useState("")
  const [invited, setInvited] = useState<"member" | "admin">("member")
  const [role, setRole] = useState<Role>("member")
  const one = asked !== undefined && asked.what !== "invite" ? asked : undefined
  return (
    <>
      <Head title="Members">
        <Gated by={Invitations.endpoints.create} what="Inviting">
          <Button
            look="main"
            onClick={() => {
              setEmail("")
              ask({ what: "invite" })
            }}
          >
            Invite somebody
          </Button>
        </Gated>
      </Head>
      {failure !== undefined && <Problem failure={failure} />}
      <Panel>
        <Answered of={members} what="members">
          {(list) => (
            <Table
              of={list}
              keyOf={({ id }) => id}
              label="Members"
              empty="Nobody belongs to it."
              columns={[
                {
                  head: "Name",
                  look: "written",
                  cell: ({ name, userId: id }) => (
                    <>
                      <b className="font-medium">{name}</b>
                      {id === userId && <span className="text-faint"> you</span>}
                    </>
                  )
                },
                { head: "Address", look: "written", cell: ({ email }) => email },
                { head: "Role", cell: ({ role }) => role },
                { head: "Joined", cell: ({ createdAt }) => <At at={createdAt} /> },
                {
                  ...menuColumn,
                  cell: ({ id, name, role }) => (
                    <RowMenu
                      label={name}
                      actions={[
                        {
                          name: "Change the role",
                          by: Members.endpoints.update,
                          run: () => {
                            setRole(role)
                            ask({ what: "role", id, name })
                          }
                        },
                        {
                          name: "Remove",
                          by: Members.endpoints.remove,
                          danger: true,
                          run: () => ask({ what: "remove", id, name })
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
      <h2>Invitations</h2>
      <Panel>
        <Answered of={invitations} what="invitations">
          {(list) => (
            <Table
              of={list}
              keyOf={({ id }) => id}
              label="Invitations"
              empty="Nobody is invited who has not joined. An invitation is sent by mail, and its link joins the organization."
              columns={[
                { head: "Address", look: "written", cell: ({ email }) => email },
                { head: "Role", cell: ({ role }) => role },
                { head: "Ends", cell: ({ expiresAt }) => <In at={expiresAt} /> },
                {
                  ...menuColumn,
                  cell: ({ id, email }) => (
                    <RowMenu
                      label={email}
                      actions={[
                        {
                          name: "Take it back",
                          by: Invitations.endpoints.revoke,
                          danger: true,
                          run: () =>
                            run(() =>
                              organization.invitations.revoke({ params: { ...params, invitationId: id } })
                            )
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
      <Confirm
        {...dialog}
        open={asked?.what === "invite"}
        title="Invite somebody"
        says="A mail with a link goes to the address; whoever opens it within seven days and signs in with that address joins."
        action="Send the invitation"
        ready={email.includes("@")}
        confirmed={() =>
          run((headers) =>
            organization.invitations.create({
              params,
              headers,
              payload: { email, role: invited }
            })
          )
        }
      >
        <Field label="E-mail address" type="email" value={email} changed={setEmail} autoComplete="off" />
        <Choice label="Role" value={invited} of={invitable} changed={setInvited} />
      </Confirm>
      <Confirm
        {...dialog}
        open={asked?.what === "role"}
        title={`Role of ${one?.name ?? ""}`}
        says="It holds at once, also for the keys and agents of that member, which never may more than the member."
        action="Change the role"
        confirmed={() =>
          one !== undefined &&
          run(() => client.members.update({ params: { ...params, memberId: one.id }, payload: { role } }))
        }
      >
        <Choice
          label="Role"
          value={role}
          of={org.role === "owner" ? roles : roles.filter(([each]) => each !== "owner" || role === "owner")}
          changed={setRole}
        />
      </Confirm>
      <Confirm
        {...dialog}
        open={asked?.what === "remove"}
        look="danger"
        title={`Remove ${one?.name ?? ""}`}
        says="The keys that the member made, what was granted to agents and open invitations end with that. What the member made stays."
        action="Remove the member"
        confirmed={() =>
          one !== undefined && run(() => client.members.remove({ params: { ...params, memberId: one.id } }))
        }
      />
    </>
  )
}
