/** How a domain is answered. */
import * as Effect from "effect/Effect"
import { Domain } from "#schemas/domain.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { fromStore, type Problem } from "#src/api/problem.ts"
import { decodeWith } from "#src/api/views.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import type { ListedRecord } from "#src/store/records.ts"
import type { DomainView } from "./api.ts"
import { Claims } from "./Claims.ts"
import { destinations, instructionsOf } from "./destinations.ts"
import { unicodeOf } from "./names.ts"

type View = (typeof DomainView)["Encoded"]
const decode = decodeWith(Domain)

/** Looks up claims and managed addresses for all `records` at once, and answers how one is viewed. */
export const makeViewer = Effect.gen(function* () {
  const claims = yield* Claims
  const sites = yield* EdgeSites
  const destinationOf = yield* destinations

  return Effect.fnUntraced(function* (
    records: ReadonlyArray<ListedRecord>
  ): Effect.fn.Return<(record: ListedRecord) => View, Problem, RequestScope> {
    const { orgId } = yield* RequestScope
    const environments = [...new Set(records.flatMap(({ parentUid }) => parentUid ?? []))]
    const [claimed, managed] = yield* Effect.mapError(
      Effect.all([
        claims.ofDomains(
          orgId,
          records.map(({ uid }) => uid)
        ),
        sites.managedHosts(orgId, environments)
      ]),
      fromStore
    )
    return (record) => {
      const host = managed.get(record.parentUid ?? "")
      return viewOf(
        record,
        host === undefined
          ? "The environment gets its address just now: ask again shortly for the DNS record to create."
          : instructionsOf(record.name, destinationOf(host), claimed.get(record.uid))
      )
    }
  })
})

const viewOf = (record: ListedRecord, instructions: string): View => {
  const { spec, status } = decode(record)
  const failed = record.phase === "failed"
  const ready = record.conditions.find(({ type }) => type === "Ready")
  return {
    id: record.uid,
    hostname: record.name,
    displayName: unicodeOf(record.name) ?? record.name,
    environment: record.environment ?? "",
    status: failed ? "failed" : (status?.state ?? "pending_dns"),
    verificationErrors: failed ? (ready?.message ?? null) : (status?.verificationErrors ?? null),
    instructions,
    redirectTo: spec.redirectTo ?? null,
    hstsSeconds: spec.hstsSeconds ?? 0,
    certificateExpiresAt: status?.certificateExpiresAt ?? null,
    createdAt: record.createdAt.toISOString()
  }
}
