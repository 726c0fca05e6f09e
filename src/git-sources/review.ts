/**
 * Plans of pull requests: what merging one would make of the organization, by each git source that is kept from the branch
 * that it would be merged into. A plan is made with the rights of the source, of the manifest at the pull request's head, and
 * anew at each look, since what is there changes as well. Nothing is stored of it but what tells it from others.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Authority, mayAsAdmin, type Standing } from "#src/access/Authority.ts"
import type { ForgeClient, PullRequest } from "#src/git/ForgeClient.ts"
import type { OpenConnection } from "#src/git/GitConnections.ts"
import type { ProjectLook } from "#src/git/project-looks.ts"
import { Manifests } from "#src/manifest/Manifests.ts"
import { GitSources } from "./GitSources.ts"
import { effectsOf, faultOf, invalidText, rightsLost, sourceOf } from "./look.ts"
import { ManifestRepository } from "./ManifestRepository.ts"
import { code, noPlan, type PlanWords, planWords, roomOf, together } from "./plan-comment.ts"
import { type Review, Reviews, type ShownPlan, type SourceOfRepository } from "./Reviews.ts"

interface Look extends ProjectLook {
  readonly repo: string
}

/** What a pull request is to show. */
export interface PullRequestPlan extends PlanWords {
  readonly pullRequest: number
  readonly commit: string
  /** To be kept once it is shown. */
  readonly plans: ReadonlyArray<ShownPlan>
}

/** What became of a merged one. */
export interface PullRequestOutcome extends PlanWords {
  readonly pullRequest: number
  readonly commit: string
  /** To be forgotten once it is told. */
  readonly reviews: ReadonlyArray<ShownPlan>
}

export interface PlansOfLook {
  readonly plans: ReadonlyArray<PullRequestPlan>
  readonly outcomes: ReadonlyArray<PullRequestOutcome>
  /** Pull requests whose turn did not come, and that show an older plan. */
  readonly left: ReadonlySet<number>
}

export interface PullRequestsOfLook {
  readonly look: Look
  readonly connection: OpenConnection
  readonly client: ForgeClient
  /** Address that git fetches it from. */
  readonly repository: string
  readonly open: ReadonlyArray<PullRequest>
  /** Whether somebody has approved its commit, which is in somebody else's repository. */
  readonly isApproved: (pull: PullRequest) => boolean
}

/** Pull requests that are planned, those changed last. */
const mostPlanned = 20
/** Of those that are not open any more, in one look. */
const mostAsked = 20
/** For all plans of a look, which end well before its lease does. */
const allMs = 60_000

const bare = (url: string) => url.toLowerCase().replace(/(\.git)?\/?$/, "")
const branchOf = (ref: string) => ref.replace(/^refs\/heads\//, "")

export const makeReviewing = Effect.gen(function* () {
  const authority = yield* Authority
  const repository = yield* ManifestRepository
  const manifests = yield* Manifests
  const reviews = yield* Reviews
  const gitSources = yield* GitSources

  type Planned = PlanWords & Pick<ShownPlan, "digest" | "parts">
  const without = (words: PlanWords): Planned => ({ ...words, digest: null, parts: {} })

  const plan = Effect.fnUntraced(function* (
    orgId: string,
    { name, spec }: SourceOfRepository,
    standing: Standing,
    { head }: PullRequest
  ) {
    const place = { orgId, url: spec.url, connection: spec.connection }
    const found = yield* repository.read(place, head.commit, spec.path)
    const opened = yield* manifests.open(sourceOf(found))
    const request = { prune: spec.prune, confirm: [] }
    const compared = yield* Effect.result(manifests.compare(orgId, standing.slug, opened, request))
    if (compared._tag === "Failure") {
      if (compared.failure._tag === "StoreUnavailable") return yield* compared.failure
      const { faults } = compared.failure
      return without(noPlan("failure", name, invalidText(found.path, faults), faults))
    }
    const about = { source: name, path: found.path, commit: head.commit, ref: branchOf(spec.ref) }
    const effects = effectsOf(compared.success.changes)
    const { whole, parts } = compared.success.digest
    return {
      ...planWords(
        { ...about, reviewed: spec.reviewed, billingActive: standing.billingActive },
        compared.success,
        effects
      ),
      digest: effects.length === 0 ? null : whole,
      parts
    }
  })

  /** Whatever keeps a plan from being made is what the pull request shows. */
  const plannedOrNot = (
    orgId: string,
    source: SourceOfRepository,
    standing: Standing,
    pull: PullRequest,
    leftMs: number
  ) =>
    plan(orgId, source, standing, pull).pipe(
      Effect.catchTag(["RepositoryError", "MalformedSource", "ReaderBusy", "InvalidManifest"], (error) =>
        Effect.succeed(without(noPlan(stateOf(error._tag), source.name, faultOf(error).message)))
      ),
      Effect.timeoutOrElse({
        duration: Math.max(leftMs, 0),
        orElse: () => Effect.succeed(without(noPlan("error", source.name, "It could not be planned in time")))
      })
    )

  const planOf = Effect.fnUntraced(function* (
    { look: { orgId }, isApproved }: PullRequestsOfLook,
    sources: ReadonlyArray<SourceOfRepository>,
    known: ReadonlyArray<Review>,
    pull: PullRequest,
    end: number
  ) {
    const isApprovedFor = ({ uid }: SourceOfRepository) =>
      known.some(
        ({ sourceId, pullRequest, approvedCommit }) =>
          sourceId === uid && pullRequest === pull.number && approvedCommit === pull.head.commit
      )
    const made = yield* Effect.forEach(sources, (source) =>
      Effect.gen(function* () {
        if (pull.isFork && !isApproved(pull) && !isApprovedFor(source))
          return { source, ...without(noPlan("pending", source.name, waits, [], approval(source, pull))) }
        const standing = Option.getOrUndefined(yield* authority.of(orgId, source.spec.principal))
        if (standing === undefined || !mayAsAdmin(standing, "manifest.apply"))
          return { source, ...without(noPlan("failure", source.name, rightsLost.message)) }
        const leftMs = end - (yield* Clock.currentTimeMillis)
        return { source, ...(yield* plannedOrNot(orgId, source, standing, pull, leftMs)) }
      })
    )
    const words = together(made)
    const [pullRequest, commit] = [pull.number, pull.head.commit]
    return (
      words && {
        ...words,
        ...{ pullRequest, commit },
        plans: made.map(({ source, digest, parts, text }) => ({
          sourceId: source.uid,
          ...{ pullRequest, commit, parts },
          digest: text.length > roomOf(made.length) ? null : digest
        }))
      }
    )
  })

  /** Those that are not open any more: what became of them, as far as that is known. */
  const closed = Effect.fnUntraced(function* (
    { look, client }: PullRequestsOfLook,
    sources: ReadonlyArray<SourceOfRepository>,
    gone: ReadonlyArray<Review>
  ) {
    const outcomes: Array<PullRequestOutcome> = []
    const byNumber = [...Map.groupBy(gone, ({ pullRequest }) => pullRequest)].slice(0, mostAsked)
    for (const [pullRequest, some] of byNumber) {
      const found = yield* client.pullRequest(look.repo, pullRequest).pipe(
        Effect.map(Option.some),
        Effect.catch((error) =>
          error.code === "limited" || error.code === "unreachable"
            ? Effect.fail(error)
            : Effect.succeed(Option.none<PullRequest>())
        )
      )
      const pull = Option.getOrUndefined(found)
      // It may have been opened again at this moment.
      if (pull?.state === "open") continue
      const isMerged = (review: Review) =>
        pull?.state === "merged" &&
        review.digest !== null &&
        sources.some(
          ({ uid, spec }) =>
            uid === review.sourceId && branchOf(spec.ref) === pull.base.branch && !spec.suspended
        )
      for (const review of some) {
        if (!isMerged(review)) yield* reviews.forget(look, review)
        else if (review.mergedMs === null) {
          yield* reviews.merged(look, review)
          yield* gitSources.ask({ orgId: look.orgId, uid: review.sourceId })
        }
      }
      const told = some.filter((review) => isMerged(review) && review.outcome !== null)
      const words = together(
        told.map((review) =>
          outcomeWords(sources.find(({ uid }) => uid === review.sourceId)?.name ?? "", review)
        )
      )
      if (pull !== undefined && words !== undefined)
        outcomes.push({ ...words, pullRequest, commit: pull.head.commit, reviews: told })
    }
    return outcomes
  })

  return Effect.fn("GitSources.review")(function* (of: PullRequestsOfLook) {
    const { look, connection, open } = of
    const all = (yield* reviews.sources(look, connection.id)).filter(
      ({ spec }) => bare(spec.url) === bare(of.repository)
    )
    const known = yield* reviews.of(
      look.orgId,
      all.map(({ uid }) => uid)
    )
    const sourcesOf = (pull: PullRequest) =>
      all.filter(({ spec }) => !spec.suspended && branchOf(spec.ref) === pull.base.branch)
    const wanted = open.filter((pull) => sourcesOf(pull).length > 0)
    const plans: Array<PullRequestPlan> = []
    const end = (yield* Clock.currentTimeMillis) + allMs
    for (const pull of wanted.slice(0, mostPlanned)) {
      if ((yield* Clock.currentTimeMillis) > end) break
      const made = yield* planOf(of, sourcesOf(pull), known, pull, end)
      if (made !== undefined) plans.push(made)
    }
    const planned = new Set(plans.map(({ pullRequest }) => pullRequest))
    const left = new Set(
      known.flatMap(({ pullRequest }) =>
        planned.has(pullRequest) || !wanted.some(({ number }) => number === pullRequest) ? [] : [pullRequest]
      )
    )
    const openNumbers = new Set(open.map(({ number }) => number))
    // It would be merged into another branch by now.
    const astray = known.filter(({ pullRequest, sourceId }) =>
      open.some((pull) => pull.number === pullRequest && !sourcesOf(pull).some(({ uid }) => uid === sourceId))
    )
    yield* Effect.forEach(astray, (review) => reviews.forget(look, review), { discard: true })
    const outcomes = yield* closed(
      of,
      all,
      known.filter(({ pullRequest }) => !openNumbers.has(pullRequest))
    )
    return { plans, outcomes, left } satisfies PlansOfLook
  })
})

const waits =
  "its commit is in somebody else's repository: it is planned once an admin has approved that commit"
const approval = ({ name }: SourceOfRepository, { number, head }: PullRequest) =>
  `svc git-sources approve ${name} ${number} --commit ${head.commit}`

const stateOf = (tag: string) =>
  tag === "InvalidManifest" || tag === "MalformedSource" ? "failure" : "error"

const outcomeWords = (source: string, { outcome, message }: Review): PlanWords =>
  outcome === "applied"
    ? {
        state: "success",
        description: `Applied ${message ?? ""}`,
        text: `**Plan** of ${code(source)}: applied ${message ?? ""}.`
      }
    : {
        state: "failure",
        description: "Not applied",
        text: `**Plan** of ${code(source)}: not applied. ${code(message ?? "", 2_000)}`
      }
