/**
 * One look of a git source: the ref's commit, the manifest there, the plan, and the plan carried out. The plan that is
 * carried out is the one that was kept and shown. What needs more than an admin's rights, or a person's word, is kept and
 * shown, and left to people.
 */
import { randomUUIDv7 } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { GitSourceFault, GitSourcePlan, GitSourceSpec, GitSourceStatus } from "#schemas/git-source.ts"
import { Authority, mayAsAdmin, type Standing } from "#src/access/Authority.ts"
import { billingInactive } from "#src/access/billing.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { Retryable } from "#src/engine/Reconciler.ts"
import { Manifests, type Opened } from "#src/manifest/Manifests.ts"
import type { Compared, Comparison } from "#src/manifest/view.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import {
  faultsOfCommits,
  ManifestRepository,
  type RepositoryError,
  type RepositoryManifest
} from "./ManifestRepository.ts"
import { type Decision, Reviews } from "./Reviews.ts"
import { applied, isDone, movedFrom, notApplied } from "./review-outcome.ts"

export const nothingYet: GitSourceStatus = {
  commit: null,
  lookedAt: null,
  planned: null,
  applied: null,
  drift: null,
  fault: null,
  failures: 0
}

interface Subject {
  readonly orgId: string
  readonly uid: string
  readonly fence: bigint
  readonly spec: GitSourceSpec
}

/** So many of a list are kept. */
const most = 100
const mostFields = 20

const retryable = <A, E extends { readonly message: string }>(self: Effect.Effect<A, E>) =>
  Effect.mapError(self, ({ message }) => new Retryable({ message }))

export const makeLook = Effect.gen(function* () {
  const authority = yield* Authority
  const repository = yield* ManifestRepository
  const manifests = yield* Manifests
  const reviews = yield* Reviews

  /**
   * What a look at `source` comes to, after one that came to `before`. `keep` stores what is known before the
   * organization is changed, and fails where a later reconcile works on the source.
   */
  return Effect.fn("GitSources.look")(function* (
    source: Subject,
    before: GitSourceStatus,
    keep: (status: GitSourceStatus) => Effect.Effect<void, Retryable>
  ) {
    const { orgId, uid, spec } = source
    const lookedAt = new Date(yield* Clock.currentTimeMillis).toISOString()
    const failed = (fault: GitSourceFault, seen: Partial<GitSourceStatus> = {}): GitSourceStatus => ({
      ...before,
      ...seen,
      lookedAt,
      fault,
      failures: before.failures + 1
    })

    const found = yield* retryable(authority.of(orgId, spec.principal))
    if (Option.isNone(found)) return yield* new Retryable({ message: "The organization is being deleted" })
    const standing = found.value
    if (!mayAsAdmin(standing, "manifest.apply")) return failed(rightsLost)

    // Before the commit: what is merged by now is in the commit that is found next, so nothing is decided of an older one.
    const undecided = spec.connection === null ? [] : yield* find(source)
    const merged = undecided.filter(({ mergedMs }) => mergedMs !== null)
    /** Nothing can be made of this commit, whenever it is looked at again. */
    const decideNone = (why: string) =>
      decide(
        source,
        merged.map((review) => notApplied(review, why))
      )
    const read = yield* Effect.result(readManifest(source))
    if (read._tag === "Failure") {
      const wrong = faultOf(read.failure)
      if (faultsOfCommits.has(wrong.code)) yield* decideNone(wrong.message)
      return failed(wrong)
    }
    const { commit, opened, path } = read.success
    const request = { prune: spec.prune, confirm: [] }
    const compared = yield* Effect.result(storeAway(manifests.compare(orgId, standing.slug, opened, request)))
    if (compared._tag === "Failure") {
      if (compared.failure._tag === "Retryable") return yield* compared.failure
      const errors = compared.failure.faults.slice(0, most)
      const message = invalidText(path, errors)
      yield* decideNone(message)
      return failed({ code: "manifest_invalid", message, errors }, { commit })
    }
    const seen = { commit, lookedAt, fault: null, failures: 0 }
    const { changes, blockers, digest } = compared.success
    const wanted = effectsOf(changes)
    const isNews = before.applied?.commit !== commit
    if (wanted.length === 0 && blockers.length === 0) {
      yield* decide(
        source,
        merged.filter((review) => isDone(review, isNews)).map((review) => applied(review, commit))
      )
      return { ...before, ...seen, applied: isNews ? { commit, at: lookedAt, planId: null } : before.applied }
    }

    const drift = isNews
      ? before.drift
      : { at: lookedAt, addresses: wanted.slice(0, most).map(({ address }) => address) }
    const shownBy = undecided.filter((review) => review.digest === digest.whole)
    const held =
      heldBack(compared.success, standing) ??
      (spec.reviewed && !shownBy.some((review) => merged.includes(review)) ? notReviewed : undefined)
    // What is applied at once is made for this moment; what waits for people stays as they were shown it.
    const kept = held === undefined ? null : before.planned
    const planned = yield* plan(source, standing, opened, commit, compared.success, kept, lookedAt)
    const status = { ...before, ...seen, planned, drift }
    yield* keep(status)
    if (held !== undefined) {
      const why = held === notReviewed ? undefined : held.message
      yield* decide(
        source,
        merged.map((review) => notApplied(review, why ?? movedFrom(review, digest), planned.planId))
      )
      return failed(held, { commit, planned, drift })
    }
    const actor: Actor = {
      principal: spec.principal,
      credential: "none",
      operation: "gitSources.apply",
      requestId: uid,
      address: null,
      outcome: 202
    }
    // Somebody else changed something at this moment: the next look plans anew.
    yield* retryable(
      externalCall(
        "gitSources.apply",
        "write"
      )(
        Effect.mapError(manifests.applyPlan(orgId, planned.planId, "admin", actor, false), (error) => ({
          message: `The plan could not be carried out: ${applyText(error)}`
        }))
      )
    )
    yield* decide(source, [
      ...shownBy.map((review) => applied(review, commit)),
      ...merged
        .filter((review) => !shownBy.includes(review))
        .map((review) =>
          spec.reviewed ? notApplied(review, movedFrom(review, digest)) : applied(review, commit)
        )
    ])
    return { ...status, applied: { commit, at: lookedAt, planId: planned.planId } }
  })

  function find(source: Subject) {
    return externalCall("gitSources.reviews", "read")(retryable(reviews.undecided(source)))
  }

  function decide(source: Subject, decisions: ReadonlyArray<Decision>) {
    if (decisions.length === 0) return Effect.void
    const { orgId, uid, fence, spec } = source
    return externalCall(
      "gitSources.decide",
      "write"
    )(
      Effect.flatMap(retryable(reviews.decide({ orgId, uid, fence, url: spec.url }, decisions)), (done) =>
        done ? Effect.void : Effect.fail(new Retryable({ message: "A later reconcile works on the source" }))
      )
    )
  }

  /** The manifest at the commit that the ref names now. */
  function readManifest({ orgId, spec }: Subject) {
    const { url, connection, ref, path } = spec
    const place = { orgId, url, connection }
    return Effect.gen(function* () {
      const commit = yield* externalCall("git.resolve", "read")(repository.resolve(place, ref))
      const found = yield* externalCall("git.fetch", "read")(repository.read(place, commit, path))
      return { commit, path: found.path, opened: yield* manifests.open(sourceOf(found)) }
    })
  }

  /** The plan that is kept already, if it says the same still; else a new one. */
  function plan(
    { orgId, spec }: Subject,
    { slug }: Standing,
    opened: Opened,
    commit: string,
    compared: Compared,
    kept: GitSourcePlan | null,
    now: string
  ) {
    const { digest } = compared
    const { create, update, replace, delete: deleted } = compared.summary
    const said = {
      commit,
      summary: { create, update, replace, delete: deleted },
      changes: shown(compared)
    }
    const whole = digestText(digest)
    if (kept !== null && kept.expiresAt > now) {
      const { planId: _, createdAt: __, expiresAt: ___, ...other } = kept
      if (isDeepStrictEqual(other, { ...said, digest: whole })) return Effect.succeed(kept)
    }
    const request = { prune: spec.prune, confirm: [] }
    return externalCall(
      "gitSources.plan",
      "write"
    )(
      Effect.mapError(manifests.plan(randomUUIDv7(), orgId, slug, opened, request), (error) =>
        error._tag === "InvalidManifest"
          ? new Retryable({ message: "The manifest does not fit what is there any more" })
          : new Retryable({ message: error.message })
      )
    ).pipe(
      Effect.flatMap(
        ({ planId, createdAt, expiresAt, digest: made }): Effect.Effect<GitSourcePlan, Retryable> =>
          // It is to be what was compared with what pull requests have shown.
          made.whole === digest.whole
            ? Effect.succeed({ planId, createdAt, expiresAt, digest: digestText(made), ...said })
            : Effect.fail(new Retryable({ message: "Something changed while it was planned" }))
      )
    )
  }
})

/** Of what a plan does, and of what it was made for: one that is kept is of use for as long as neither has changed. */
const digestText = ({ whole, base }: Compared["digest"]) => `${whole}.${base}`

export const sourceOf = ({ path, text }: RepositoryManifest) => ({
  text,
  language: path.endsWith(".json") ? ("json" as const) : ("yaml" as const),
  inside: undefined
})

const storeAway = <A, E extends { readonly _tag: string }>(self: Effect.Effect<A, E | StoreUnavailable>) =>
  Effect.mapError(self, (error) => (isAway(error) ? new Retryable({ message: error.message }) : error))
const isAway = (error: { readonly _tag: string }): error is StoreUnavailable =>
  error._tag === "StoreUnavailable"

type Wanted = Comparison["changes"][number] & { readonly action: GitSourcePlan["changes"][number]["action"] }
export const effectsOf = (changes: Comparison["changes"]): ReadonlyArray<Wanted> =>
  changes.filter((change): change is Wanted => change.action !== "noop")

const shown = ({ changes }: Comparison): GitSourcePlan["changes"] =>
  effectsOf(changes)
    .slice(0, most)
    .map(({ address, action, risk, requires, patch }) => ({
      address,
      action,
      risk,
      role: requires.role,
      fields: patch.flatMap(({ op, path }) => (op === "test" ? [] : [path])).slice(0, mostFields)
    }))

const fault = (code: string, message: string): GitSourceFault => ({ code, message, errors: [] })

export const rightsLost = fault(
  "rights_lost",
  "Who made the source or changed it last may not apply a manifest any more; somebody who may has to change it, or suspend and resume it"
)

const notReviewed = fault(
  "not_reviewed",
  "No merged pull request has shown this plan, and the source applies nothing else; apply the plan that is kept"
)

/** Why the plan is left to people. */
export const heldBack = (
  { changes, blockers }: Comparison,
  { billingActive }: Standing
): GitSourceFault | undefined => {
  if (blockers.length > 0)
    return {
      code: "plan_blocked",
      message: `The plan cannot be applied: ${blockers[0]?.message}`,
      errors: blockers.slice(0, most).map(({ code: _, ...at }) => at)
    }
  const above = effectsOf(changes).filter(({ requires }) => requires.role === "owner")
  if (above.length > 0)
    return fault(
      "owner_needed",
      `Only an owner may apply this plan, because of ${above[0]?.address}${above.length > 1 ? ` and ${above.length - 1} more` : ""}`
    )
  if (!billingActive) return fault("billing_inactive", billingInactive)
  return undefined
}

export const invalidText = (
  path: string,
  faults: ReadonlyArray<{ readonly pointer: string; readonly message: string }>
) =>
  `${path} has ${faults.length === 1 ? "a fault" : `${faults.length} faults`}: ${faults[0]?.pointer ?? ""} ${faults[0]?.message ?? ""}`

type ReadError = RepositoryError | Effect.Error<ReturnType<Manifests["Service"]["open"]>>
export const faultOf = (error: ReadError): GitSourceFault => {
  switch (error._tag) {
    case "RepositoryError":
      return fault(error.code, error.message)
    case "MalformedSource":
      return fault("manifest_invalid", `The manifest is not valid JSON: ${error.message}`)
    case "ReaderBusy":
      return fault("busy", "Too many large manifests wait to be read")
    case "InvalidManifest":
      return fault("manifest_invalid", `The manifest cannot be read: ${error.faults[0]?.message}`)
  }
}

const applyText = (error: Effect.Error<ReturnType<Manifests["Service"]["applyPlan"]>>): string => {
  switch (error._tag) {
    case "StalePlan":
      return `these changed meanwhile: ${error.addresses.slice(0, 10).join(", ")}`
    case "UnknownPlan":
      return "it is not there any more"
    case "RoleTooLow":
      return "only an owner may"
    case "Blocked":
      return error.blockers[0]?.message ?? "it is blocked"
    case "NameTaken":
      return "a name in it is taken"
    case "NotFound":
      return "something that it names is not there"
    case "RevisionConflict":
      return "something in it changed meanwhile"
    default:
      return error.message
  }
}
