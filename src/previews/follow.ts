/**
 * Previews follow the pull requests of their project's repository. A look asks the forge what is open now and makes the
 * previews that: which events came, in which order, and how often does not matter, and one that was lost costs an interval.
 */
import { randomUUIDv7 } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { lineOf } from "#schemas/display-text.ts"
import { previewSlug } from "#schemas/names.ts"
import { Preview, type PreviewSpec } from "#schemas/preview.ts"
import { makeBillingActive } from "#src/access/billing.ts"
import { cloneUrl, Forge } from "#src/git/Forge.ts"
import type { ForgeClient, PullRequest } from "#src/git/ForgeClient.ts"
import { leaseSeconds } from "#src/git/project-looks.ts"
import { settings } from "#src/git/settings.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { periodic } from "#src/loops/periodic.ts"
import type { Change } from "#src/store/change.ts"
import { Db, notifications } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor, ResourceRecord } from "#src/store/records.ts"
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

const decode = Schema.decodeUnknownOption(Preview.spec)
const complete = Schema.decodeUnknownSync(Preview.spec)
const isTitle = Schema.is(lineOf(300))

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

  /** Undefined: nothing is to be changed. */
  const changeFor = (
    projectId: string,
    repository: string,
    pull: PullRequest,
    there: ResourceRecord | undefined
  ): Change | undefined => {
    const told = {
      commit: pull.head.commit,
      title: isTitle(pull.title) ? pull.title : null
    }
    if (there === undefined)
      return {
        ...{ action: "create", uid: randomUUIDv7(), kind: Preview.name, projectId, environment: null },
        ...{ name: previewSlug(pull.number), parentUid: projectId, managedBy: "api" },
        // The forge says when it is over.
        spec: complete({
          ...told,
          pullRequest: pull.number,
          fork: pull.isFork,
          expiresAt: null,
          followed: true,
          repository
        })
      }
    const before = Option.getOrUndefined(decode(there.spec))
    if (before === undefined) return undefined
    // Whoever made it may have said that it is none, and the forge knows better; never the other way round.
    const after: PreviewSpec = {
      ...before,
      ...told,
      fork: before.fork || pull.isFork,
      followed: true,
      repository
    }
    return isDeepStrictEqual(before, after)
      ? undefined
      : { action: "update", uid: there.uid, spec: after, expectedGeneration: there.generation }
  }

  /** Whether the forge says that it is over; what it does not answer is not. */
  const isOver = (client: ForgeClient, repo: string, { spec }: ResourceRecord) =>
    Option.match(decode(spec), {
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

  const follow = Effect.fnUntraced(function* (look: PullRequestLook) {
    const { orgId, projectId, repo, previewed } = look
    const found = yield* forge.forRepo(orgId, repo)
    const isOverdue = yield* looks.connected(look, Option.isSome(found))
    if (Option.isNone(found)) {
      if (isOverdue) yield* abandon(look)
      return false
    }
    const { client, connection } = found.value
    const repository = cloneUrl(connection.url, repo)
    const open = yield* client.pullRequests(repo)
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
    const forks = left.filter(({ spec }) => Option.exists(decode(spec), ({ fork }) => fork)).length
    const most = (yield* billingActive(orgId)) ? mostPreviews : 0
    const room = { all: most - left.length, forks: mostForks - forks }
    const changes = open.flatMap((pull): ReadonlyArray<Change> => {
      const there = byName.get(previewSlug(pull.number))
      if (strangers.has(previewSlug(pull.number))) return []
      if (there === undefined) {
        // Somebody closed it, or its time was over: it stays closed until there is something new to look at.
        if (previewed[pull.number] === pull.head.commit) return []
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
    const known = strange.length === 0 ? previewed : {}
    const after = previewedNow(open, known, there)
    if (!isDeepStrictEqual(after, previewed)) yield* looks.remember(look, after)
    const failed = written.find(Result.isFailure)
    if (failed !== undefined)
      return yield* Effect.fail({ message: "A preview was changed by somebody else meanwhile" })
    const now = yield* resources.listKind(orgId, Preview.name, projectId)
    const pending = yield* Effect.forEach(
      now.filter(({ name, deletionRequestedAt }) => names.has(name) && deletionRequestedAt === null),
      (record) => tell(client, repo, record),
      { concurrency: 2 }
    )
    return strange.length > 0 || pending.includes(true)
  })

  return (look: PullRequestLook): Effect.Effect<Looked> =>
    follow(look).pipe(
      Effect.match({
        onSuccess: (isPending) => ({ error: undefined, isPending }),
        onFailure: ({ message }) => ({ error: message, isPending: false })
      })
    )
})

/** The repository whose pull request it follows, null if that is not known; undefined: somebody made it by hand. */
const followedOf = (spec: unknown) => {
  const preview = Option.getOrUndefined(decode(spec))
  return preview?.followed === true ? preview.repository : undefined
}

/** What is forgotten of a pull request that is not open lets it have a preview when it is opened again. */
const previewedNow = (
  open: ReadonlyArray<PullRequest>,
  before: Previewed,
  there: ReadonlySet<string>
): Previewed =>
  Object.fromEntries(
    open.flatMap(({ number, head }) => {
      const commit = there.has(previewSlug(number)) ? head.commit : before[number]
      return commit === undefined ? [] : [[number, commit]]
    })
  )

const notAnswered = "The forge does not say whether a pull request is open"

export const followLoop = Effect.gen(function* () {
  const looks = yield* PullRequestLooks
  const { engine: sql } = yield* Db
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
    wake: notifications(sql, channel)
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
