/**
 * Whether a domain lets an authority issue (CAA, RFC 8659), looked at before anything is ordered: the authority would
 * refuse as well, and counts refusals.
 */
import * as Effect from "effect/Effect"
import type { CaaRecord, DnsResolver } from "#src/domains/dns/Resolver.ts"

const knownTags: ReadonlySet<string> = new Set([
  "issue",
  "issuewild",
  "iodef",
  "issuemail",
  "contactemail",
  "contactphone"
])

/**
 * Why an authority that goes by these names may not issue, in words for users; undefined: nothing is known to be against
 * it. An unanswered question is nothing against it: the authority asks for itself.
 */
export const caaRefusal = Effect.fnUntraced(function* (
  resolver: Pick<DnsResolver, "caa">,
  name: string,
  identities: ReadonlyArray<string>
) {
  if (identities.length === 0) return undefined
  const wildcard = name.startsWith("*.")
  const labels = (wildcard ? name.slice(2) : name).split(".")
  // The nearest name that has any decides (section 3).
  for (let from = 0; from < labels.length; from++) {
    const owner = labels.slice(from).join(".")
    const answer = yield* Effect.option(resolver.caa(owner))
    if (answer._tag === "None") return undefined
    if (answer.value.records.length > 0)
      return refusalOf(answer.value.records, { owner, wildcard, identities })
  }
  return undefined
})

const refusalOf = (
  records: ReadonlyArray<CaaRecord>,
  {
    owner,
    wildcard,
    identities
  }: { readonly owner: string; readonly wildcard: boolean; readonly identities: ReadonlyArray<string> }
): string | undefined => {
  const unknown = records.find(({ critical, tag }) => critical && !knownTags.has(tag))
  if (unknown !== undefined) {
    return `A CAA record of ${owner} has the critical tag "${unknown.tag}", which no authority may pass over`
  }
  const of = (wanted: string) => records.filter(({ tag }) => tag === wanted)
  const [tag, relevant] =
    wildcard && of("issuewild").length > 0 ? ["issuewild", of("issuewild")] : ["issue", of("issue")]
  // Records of other tags alone forbid nothing (section 4.2).
  if (relevant.length === 0) return undefined
  const allowed = relevant.map(({ value }) => (value.split(";")[0] ?? "").trim().toLowerCase())
  if (identities.some((identity) => allowed.includes(identity.toLowerCase()))) return undefined
  const others = [...new Set(allowed.filter((one) => one !== ""))]
  const now = others.length === 0 ? "let nobody issue" : `let only ${others.join(", ")} issue`
  return `The CAA records of ${owner} ${now} certificates${wildcard ? " for wildcards" : ""}; add this one: ${owner}. CAA 0 ${tag} "${identities[0]}"`
}
