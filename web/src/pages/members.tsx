/** Who belongs to the organization, in which role. */
import { client } from "../api/client.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Head, Panel } from "../parts/panel.tsx"
import { At } from "../parts/time.tsx"

export const MembersPage = () => {
  const { org } = useCaller()
  const answer = useAnswer(`members ${org.slug}`, () => client.members.list({ params: { orgId: org.slug } }))
  return (
    <>
      <Head title="Members" />
      <Panel>
        <Answered of={answer} what="members">
          {(members) => (
            <table className="w-full">
              <thead>
                <tr>
                  <th>Name</th>
                  <th>Address</th>
                  <th>Role</th>
                  <th>Joined</th>
                </tr>
              </thead>
              <tbody>
                {members.map(({ id, name, email, role, createdAt }) => (
                  <tr key={id}>
                    <td className="font-medium wrap-anywhere" dir="auto">
                      {name}
                    </td>
                    <td className="wrap-anywhere">{email}</td>
                    <td>{role}</td>
                    <td>
                      <At at={createdAt} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Answered>
      </Panel>
    </>
  )
}
