/**
 * Previews follow the pull requests of their project's repository. A look asks the forge what is open now and makes the
 * previews that: which events came, in which order, and how often does not matter, and one that was lost costs an interval.
 */
import { isDeepStrictEqual } from "node:util"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Result from "effect/Result"
import { previewSlug } from "#schemas/names.ts"
import { isTrusted, Preview } from "#schemas/preview.ts"
import { makeBillingActive } from "#src/access/billing.ts"
import { cloneUrl, Forge } from "#src/git/Forge.ts"
import type { ForgeClient, PullRequest } from "#src/git/ForgeClient.ts"
import type { OpenConnection } from "#src/git/GitConnections.ts"
import { leaseSeconds } from "#src/git/project-looks.ts"
import { settings } from "#src/git/settings.ts"
import { Reviews } from "#src/git-sources/Reviews.ts"
import { makeReviewing } from "#src/git-sources/review.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { periodic } from "#src/loops/periodic.ts"
import type { Change } from "#src/store/change.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor, ResourceRecord } from "#src/store/records.ts"
import { changeFor, decodePreview, followedOf, previewedNow } from "./changes.ts"
import { channel, type Previewed, type PullRequestLook, PullRequestLooks } from "./PullRequestLooks.ts"
import { makeTell } from "./tell.ts"

const atOnce = 8
/** Between looks at which projects have a repository. */
const syncEvery = "15 seconds"
/** Open previews of one project that are made by themselves. */
const mostPreviews = 50
/** Of them of forks: anybody can open such a pull request, and each is built. */
export const mostForks = 5
/** Until what is under way is looked at again. */
const pendingSeconds = 30

const actor: Actor = {
  principal: "system",
  credential: "none",
  operation: "previews.follow",
  requestId: "previews.follow",
  address: null,
  outcome: 202
}

/** What a look came to. */
export interface Looked {
  /** Undefined: nothing is left to do. */
  readonly error: string | undefined
  /** Something is under way that the pull request is told of when it ends. */
  readonly isPending: boolean
}

export const makeFollow = Effect.gen(function* () {
  const forge = yield* Forge
  const resources = yield* Resources
  const looks = yield* PullRequestLooks
  const tell = yield* makeTell
  const billingActive = yield* makeBillingActive
  const reviews = yield* Reviews
  const review = yield* makeReviewing

  /** Whether the forge says that it is over; what it does not answer is not. */
  const isOver = (client: ForgeClient, repo: string, { spec }: ResourceRecord) =>
    Option.match(decodePreview(spec), {
      onNone: () => Effect.succeed(false),
      onSome: ({ pullRequest }) =>
        client.pullRequest(repo, pullRequest).pipe(
          Effect.map(({ state }) => state !== "open"),
          Effect.catch(({ code }) =>
            // One that is not shown is not over, and no other waits for it.
            code === "limited" || code === "unreachable"
              ? Effect.fail({ message: notAnswered })
              : Effect.succeed(false)
          )
        )
    })

  const livingOf = ({ orgId, projectId }: PullRequestLook) =>
    Effect.map(resources.listKind(orgId, Preview.name, projectId), (records) =>
      records.filter(({ deletionRequestedAt }) => deletionRequestedAt === null)
    )

  /** Nobody says any more when these are over. */
  const abandon = Effect.fnUntraced(function* (look: PullRequestLook) {
    const followed = (yield* livingOf(look)).filter(({ spec }) => followedOf(spec) !== undefined)
    yield* Effect.forEach(
      followed,
      ({ uid }) => Effect.result(resources.write(look.orgId, [{ action: "delete", uid }], actor)),
      { discard: true }
    )
    yield* looks.remember(look, {})
  })

  /** Makes the previews those of the pull requests that are open. Answers whether the next look has to go on with it. */
  const makePreviews = Effect.fnUntraced(function* (
    look: PullRequestLook,
    client: ForgeClient,
    repository: string,
    open: ReadonlyArray<PullRequest>
  ) {
    const { orgId, projectId, repo, previewed, reopened } = look
    const living = yield* livingOf(look)
    // Numbers of another repository's pull requests say nothing here. The next look makes what is of this one.
    const strange = living.filter(({ spec }) => {
      const of = followedOf(spec)
      return of !== undefined && of !== repository
    })
    const strangers = new Set(strange.map(({ name }) => name))
    const byName = new Map(living.map((record) => [record.name, record]))
    const names = new Set(open.map(({ number }) => previewSlug(number)))
    const closed = yield* Effect.filter(
      living.filter(({ name, spec }) => !names.has(name) && followedOf(spec) === repository),
      (record) => isOver(client, repo, record),
      { concurrency: 4 }
    )
    const over = [...strange, ...closed]
    const left = living.filter((record) => !over.includes(record))
    const forks = left.filter(({ spec }) => Option.exists(decodePreview(spec), ({ fork }) => fork)).length
    const most = (yield* billingActive(orgId)) ? mostPreviews : 0
    const room = { all: most - left.length, forks: mostForks - forks }
    const known = strange.length === 0 ? without(previewed, reopened) : {}
    const changes = open.flatMap((pull): ReadonlyArray<Change> => {
      const there = byName.get(previewSlug(pull.number))
      if (strangers.has(previewSlug(pull.number))) return []
      if (there === undefined) {
        // Somebody closed it, or its time was over: it stays closed until there is something new to look at.
        if (known[pull.number] === pull.head.commit) return []
        if (room.all <= 0 || (pull.isFork && room.forks <= 0)) return []
        room.all -= 1
        if (pull.isFork) room.forks -= 1
      }
      const change = changeFor(projectId, repository, pull, there)
      return change === undefined ? [] : [change]
    })
    const ends = over.map(({ uid }): Change => ({ action: "delete", uid }))
    // Each by itself: one that somebody else changed at this moment waits for the next look, and keeps no other from it.
    const written = yield* Effect.forEach([...ends, ...changes], (change) =>
      Effect.result(resources.write(orgId, [change], actor))
    )
    const there = new Set(left.map(({ name }) => name))
    changes.forEach((change, at) => {
      if (change.action === "create" && written[ends.length + at]?._tag === "Success") there.add(change.name)
    })
    const after = previewedNow(open, known, there)
    if (reopened.length > 0 || !isDeepStrictEqual(after, previewed)) yield* looks.remember(look, after)
    const failed = written.find(Result.isFailure)
    if (failed !== undefined)
      return yield* Effect.fail({ message: "A preview was changed by somebody else meanwhile" })
    return strange.length > 0
  })

  /** What each pull request shows of its preview and of what merging it would do, and what became of merged ones. */
  const say = Effect.fnUntraced(function* (
    look: PullRequestLook,
    { client, connection }: { readonly client: ForgeClient; readonly connection: OpenConnection },
    repository: string,
    open: ReadonlyArray<PullRequest>
  ) {
    const now = look.isProject ? yield* livingOf(look) : []
    const previews = new Map(now.map((record) => [record.name, record]))
    const isApproved = ({ number, head }: PullRequest) =>
      Option.exists(
        decodePreview(previews.get(previewSlug(number))?.spec),
        (spec) => spec.commit === head.commit && isTrusted(spec)
      )
    const { plans, outcomes, left } = yield* review({
      look,
      connection,
      client,
      repository,
      open,
      isApproved
    })
    const planOf = new Map(plans.map((plan) => [plan.pullRequest, plan]))
    const isPending = yield* Effect.forEach(
      open.filter(({ number }) => !left.has(number)),
      Effect.fnUntraced(function* ({ number, head }) {
        const plan = planOf.get(number)
        const preview = previews.get(previewSlug(number))
        const words = { pullRequest: number, commit: head.commit, preview, plan }
        const same = yield* Effect.forEach(plan?.plans ?? [], (shown) => reviews.showing(look, shown))
        const told = yield* tell(client, look, words, same.includes(false))
        // Only what stands there was reviewed.
        if (plan !== undefined && told.isShown)
          yield* Effect.forEach(plan.plans, (shown) => reviews.shown(look, shown), { discard: true })
        return told.isPending
      }),
      { concurrency: 2 }
    )
    yield* Effect.forEach(
      outcomes,
      Effect.fnUntraced(function* ({ pullRequest, commit, reviews: told, ...plan }) {
        yield* tell(client, look, { pullRequest, commit, plan })
        yield* Effect.forEach(told, (one) => reviews.forget(look, one), { discard: true })
      }),
      { discard: true }
    )
    return isPending.includes(true) || left.size > 0
  })

  const follow = Effect.fnUntraced(function* (look: PullRequestLook) {
    const found = yield* forge.forRepo(look.orgId, look.repo)
    const isOverdue = yield* looks.connected(look, Option.isSome(found))
    if (Option.isNone(found)) {
      if (isOverdue) yield* abandon(look)
      return false
    }
    const { client, connection } = found.value
    const repository = cloneUrl(connection.url, look.repo)
    const open = yield* client.pullRequests(look.repo)
    const goesOn = look.isProject && (yield* makePreviews(look, client, repository, open))
    const isPending = yield* say(look, found.value, repository, open)
    return goesOn || isPending
  })

  return (look: PullRequestLook): Effect.Effect<Looked> =>
    follow(look).pipe(
      Effect.match({
        onSuccess: (isPending) => ({ error: undefined, isPending }),
        onFailure: ({ message }) => ({ error: message, isPending: false })
      })
    )
})

const without = (previewed: Previewed, numbers: ReadonlyArray<number>): Previewed =>
  Object.fromEntries(Object.entries(previewed).filter(([number]) => !numbers.includes(Number(number))))

const notAnswered = "The forge does not say whether a pull request is open"

export const followLoop = Effect.gen(function* () {
  const looks = yield* PullRequestLooks
  const { notifications } = yield* Db
  const { pollSeconds } = yield* settings
  const run = yield* makeFollow
  const loop: LeasedLoop<PullRequestLook, Looked> = {
    name: "pull_requests",
    does: "look at pull requests",
    idOf: ({ projectId }) => projectId,
    orgOf: ({ orgId }) => orgId,
    atOnce,
    leaseMs: leaseSeconds * 1_000,
    claim: looks.claim,
    run,
    settle: Effect.fnUntraced(function* (look, { error, isPending }) {
      // Up to an hour between tries of what fails.
      const often = error === undefined ? 1 : Math.min(12, 2 ** Math.min(look.failures, 4))
      const seconds = isPending ? Math.min(pendingSeconds, pollSeconds) : pollSeconds * often
      yield* looks.settle(look, error, seconds * (0.8 + 0.4 * (yield* Random.next)))
    }),
    release: looks.giveBack,
    nextIn: looks.nextIn,
    wake: notifications(channel)
  }
  return loop
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const looks = yield* PullRequestLooks
    yield* leased(yield* followLoop)
    yield* periodic({ does: "see which projects have a repository", every: syncEvery }, looks.sync)
  })
)
