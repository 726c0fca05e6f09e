/**
 * A git source keeps the organization what a manifest in a repository says. What this keeps true: the ref is looked at as
 * often as the source says, and when somebody asks; each look ends in the manifest applied, or in a fault that says why
 * not; and nothing is left of a source that was deleted. What it applied stays.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import { GitSource, type GitSourceSpec, type GitSourceStatus } from "#schemas/git-source.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, type Resource, Retryable, register } from "#src/engine/Reconciler.ts"
import { GitSources, type SourceRow } from "#src/git-sources/GitSources.ts"
import { makeLook, nothingYet } from "#src/git-sources/look.ts"

type SourceResource = Resource<GitSourceSpec, GitSourceStatus>

const retryable = <A, E extends { readonly message: string }>(self: Effect.Effect<A, E>) =>
  Effect.mapError(self, (error) => new Retryable({ message: error.message, cause: error }))

/** First pause after a look that failed; it doubles, up to the source's own interval. */
const firstPauseMs = 30_000

/** Milliseconds until the next look is due; 0: it is due. */
const dueIn = ({ spec, generation }: SourceResource, row: SourceRow, now: number): number => {
  const { status } = row
  if (status?.lookedAt == null || row.asked > row.answered || row.generation !== generation) return 0
  const interval = spec.intervalSeconds * 1_000
  const pause =
    status.fault === null
      ? interval
      : Math.min(interval, firstPauseMs * 2 ** Math.min(status.failures - 1, 20))
  return Math.max(0, Date.parse(status.lookedAt) + pause - now)
}

export const layer = register(
  GitSource,
  { driftInterval: "1 hour", concurrency: 8 },
  Effect.gen(function* () {
    const sources = yield* GitSources
    const look = yield* makeLook
    const write = <E extends { readonly message: string }>(name: string, change: Effect.Effect<boolean, E>) =>
      Effect.flatMap(retryable(externalCall(`gitSources.${name}`, "write")(change)), (done) =>
        done ? Effect.void : Effect.fail(new Retryable({ message: "A later reconcile works on the source" }))
      )
    const find = (resource: SourceResource) =>
      Effect.map(
        retryable(externalCall("gitSources.find", "read")(sources.find(resource))),
        Option.getOrUndefined
      )

    return {
      observe: Effect.fnUntraced(function* (resource) {
        const row = yield* find(resource)
        if (row === undefined) return absent
        const status = row.status ?? nothingYet
        const present = { _tag: "Present" as const, status, differences: [] }
        if (resource.deleting) return { ...present, ready: false }
        if (resource.spec.suspended) return { ...present, ready: true, note: suspended }
        const { fault } = status
        const left = dueIn(resource, row, yield* Clock.currentTimeMillis)
        const due = [{ field: "/status/lookedAt", message: "the repository is to be looked at" }]
        if (fault === null && status.lookedAt !== null && row.generation === resource.generation)
          return left === 0
            ? { ...present, ready: true, maintenance: due }
            : { ...present, ready: true, pollAfter: yield* apart(left) }
        return {
          ...present,
          ready: false,
          ...(fault === null
            ? {}
            : { reason: reasons[fault.code] ?? "RepositoryUnreachable", message: fault.message }),
          ...(left === 0 ? { differences: due } : { pollAfter: yield* apart(left) })
        }
      }),
      converge: Effect.fnUntraced(function* (resource) {
        const { orgId, uid, fence, generation } = resource
        const ref = { orgId, uid, fence }
        yield* write("claim", sources.claim(ref))
        const row = yield* find(resource)
        if (row === undefined || resource.spec.suspended) return
        if (dueIn(resource, row, yield* Clock.currentTimeMillis) > 0) return
        const before = row.status ?? nothingYet
        // Until the look has ended it answers nobody.
        const keep = (status: GitSourceStatus) =>
          write(
            "planned",
            sources.keep(
              { ...ref, generation: row.generation, asked: row.answered },
              { ...status, lookedAt: before.lookedAt }
            )
          )
        const after = yield* look(resource, before, keep)
        yield* write("keep", sources.keep({ ...ref, generation, asked: row.asked }, after))
      }),
      remove: ({ orgId, uid, fence }) => write("remove", sources.remove({ orgId, uid, fence }))
    }
  })
)

/** Up to a fifth later: what was made together is not looked at together for ever. */
const apart = (ms: number) => Effect.map(Random.next, (random) => ms * (1 + random / 5))

const suspended = {
  reason: "Suspended",
  message: "It is suspended: the repository is not looked at and nothing is applied"
}

const reasons: Readonly<Record<string, string>> = {
  manifest_invalid: "ManifestInvalid",
  plan_blocked: "PlanBlocked",
  owner_needed: "OwnerNeeded",
  rights_lost: "RightsLost",
  not_reviewed: "NotReviewed",
  billing_inactive: "BillingInactive"
}
