/** Who did something, by name where that is known. */
import { client } from "../api/client.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"

/** Addresses of the organization's members by the ids of their accounts. */
export const useNames = (): ReadonlyMap<string, string> => {
  const { org } = useCaller()
  const { value = [] } = useAnswer(`names ${org.slug}`, () =>
    client.members.list({ params: { orgId: org.slug } })
  )
  return new Map(value.map(({ userId, email }) => [userId, email]))
}

const words: Readonly<Record<string, string>> = { key: "API key", grant: "agent", user: "user" }

/** `user:<id>`, `key:<id>`, `grant:<id>`, or a word such as `system`. */
export const Principal = ({
  of,
  names
}: {
  readonly of: string
  readonly names: ReadonlyMap<string, string>
}) => {
  const [type = "", id = ""] = of.split(":")
  const name = names.get(id)
  if (id === "" || name !== undefined) return <span title={of}>{name ?? of}</span>
  return (
    <span title={of}>
      {words[type] ?? type} …{id.slice(-6)}
    </span>
  )
}
