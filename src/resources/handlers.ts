/** Handlers of `resources.*`: status, history, the watch, and what an operator does by hand. */
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { findKind } from "#schemas/index.ts"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { Api } from "#src/api/definition/api.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, problem } from "#src/api/problem.ts"
import { makeStreams } from "#src/api/streams.ts"
import { targetRecord } from "#src/api/target.ts"
import { resourceDetail, resourceSummary } from "#src/api/views.ts"
import { precondition } from "#src/api/writing.ts"
import { type Change, Feed, isCursor } from "#src/store/Feed.ts"
import { Interventions, type PauseTarget } from "#src/store/Interventions.ts"
import { Resources } from "#src/store/Resources.ts"
import { EventPage, ResourceDetail, ResourcePage } from "./api.ts"

const ok = { ok: true as const }
/** Whether the numbers of a cursor fit the types they have in the store. */
const isInRange = (cursor: string): boolean => {
  const [transaction = "", revision = ""] = cursor.split("-")
  return BigInt(transaction) < 2n ** 64n && BigInt(revision) < 2n ** 63n
}
/** A comment, for clients that tell "nothing yet" from "nothing there": what comes later happened later. */
const caughtUp = ": that is everything\n\n"

const toMessage = ({ cursor, deleted, record }: Change): string =>
  `id: ${cursor}\nevent: change\ndata: ${JSON.stringify({ deleted, resource: resourceSummary(record) })}\n\n`

/** Proxies close what is silent for longer than a minute or so. */
const heartbeat = "15 seconds"

export const layer = HttpApiBuilder.group(
  Api,
  "resources",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const feed = yield* Feed
    const interventions = yield* Interventions
    const cursors = yield* Cursors
    const streams = yield* makeStreams

    /** The feed a page at a time. An empty one stands between what there was to begin with and what happens from then on. */
    const pages = (orgId: string, after: string | undefined) =>
      Stream.suspend(() => {
        let cursor = after
        const next = Effect.suspend(() => feed.page(orgId, cursor)).pipe(
          Effect.tap((changes) =>
            Effect.sync(() => {
              cursor = changes.at(-1)?.cursor ?? cursor
            })
          )
        )
        const present = Stream.fromEffectRepeat(next).pipe(Stream.takeWhile((changes) => changes.length > 0))
        // Without a cursor the feed would leave out what is deleted.
        const later = Stream.suspend(() => Stream.chunks(feed.follow(orgId, cursor ?? "0-0")))
        const marker: ReadonlyArray<Change> = []
        return present.pipe(Stream.concat(Stream.make(marker)), Stream.concat(later))
      })

    const projectId = Effect.fnUntraced(function* (orgId: string, project: string | undefined) {
      if (project === undefined) return undefined
      const place = yield* Effect.mapError(resources.place(orgId, project, ""), fromStore)
      return Option.isSome(place) ? place.value.projectId : yield* notFound("project")
    })

    /** What a request pauses or resumes besides a single resource. */
    const pauseTarget = Effect.fnUntraced(function* (
      orgId: string,
      scope: "organization" | "project" | "kind",
      target: string | undefined
    ) {
      if (scope === "organization") return { scope, target: "" } satisfies PauseTarget
      if (target === undefined)
        return yield* invalid([{ pointer: "/target", message: `is required: which ${scope}?` }])
      if (scope === "kind") {
        return findKind(target) === undefined
          ? yield* notFound("kind")
          : ({ scope, target } satisfies PauseTarget)
      }
      return { scope, target: (yield* projectId(orgId, target)) ?? "" } satisfies PauseTarget
    })

    return handlers.handleAll(
      handlersOf(Api.groups.resources)({
        list: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const limit = query.limit ?? defaultPageSize
          const list = `resources ${orgId}`
          const [createdAt, uid] = (yield* cursors.decode(list, query.cursor)) ?? []
          const project = yield* projectId(orgId, query.project)
          const filter = {
            ...(query.kind === undefined ? {} : { kind: query.kind }),
            ...(project === undefined ? {} : { projectId: project }),
            ...(query.environment === undefined ? {} : { environment: query.environment }),
            ...(query.phase === undefined ? {} : { phase: query.phase }),
            ...(query.ready === undefined ? {} : { ready: query.ready })
          }
          const after = createdAt === undefined || uid === undefined ? undefined : { createdAt, uid }
          const records = yield* Effect.mapError(resources.list(orgId, filter, limit + 1, after), fromStore)
          const { items, nextCursor } = cursors.page(list, records, limit, (last) => [
            last.createdAt.toISOString(),
            last.uid
          ])
          return answer(ResourcePage, {
            items: items.map(resourceSummary),
            nextCursor
          })
        }),
        get: Effect.fnUntraced(function* () {
          const record = yield* targetRecord
          return answer(ResourceDetail, resourceDetail(record), record)
        }),
        events: Effect.fnUntraced(function* ({ query }) {
          const { orgId } = yield* RequestScope
          const { uid } = yield* targetRecord
          const limit = query.limit ?? defaultPageSize
          const list = `events ${uid}`
          const [before] = (yield* cursors.decode(list, query.cursor)) ?? []
          const events = yield* Effect.mapError(resources.events(orgId, uid, limit + 1, before), fromStore)
          const { items, nextCursor } = cursors.page(list, events, limit, (last) => [last.id])
          return answer(EventPage, {
            items: items.map((event) => ({
              ...event,
              firstAt: event.firstAt.toISOString(),
              lastAt: event.lastAt.toISOString()
            })),
            nextCursor
          })
        }),
        watch: Effect.fnUntraced(function* ({ headers }) {
          const scope = yield* RequestScope
          const { orgId, stillHolds } = scope
          const after = headers["last-event-id"]
          if (after !== undefined && !(isCursor(after) && isInRange(after))) {
            return yield* invalid([
              {
                pointer: "/headers/last-event-id",
                message: "is not an event of this stream; start without one"
              }
            ])
          }
          const counted = yield* streams(scope)
          // A revoked key or a removed member loses the stream as it would lose any other request: nothing is told
          // after that. A store that does not answer just now decides nothing.
          const holds = Effect.orElseSucceed(stillHolds, () => true)
          const changes = pages(orgId, after).pipe(
            Stream.mapEffect((page) => Effect.map(holds, (held) => (held ? page : undefined))),
            Stream.takeWhile((page) => page !== undefined),
            Stream.map((page) => (page.length === 0 ? caughtUp : page.map(toMessage).join("")))
          )
          const beats = Stream.fromSchedule(Schedule.spaced(heartbeat)).pipe(
            Stream.mapEffect(() => holds),
            Stream.takeWhile((held) => held),
            Stream.map(() => ": still here\n\n")
          )
          const start = Stream.make("retry: 1000\n\n")
          return HttpServerResponse.stream(
            Stream.concat(start, Stream.merge(changes, beats, { haltStrategy: "either" })).pipe(
              counted,
              Stream.encodeText
            ),
            {
              contentType: "text/event-stream",
              headers: { "cache-control": "no-store", "x-accel-buffering": "no" }
            }
          )
        }),
        retry: Effect.fnUntraced(function* () {
          const { orgId, caller } = yield* RequestScope
          const { uid } = yield* targetRecord
          const actor = { ...caller.actor, outcome: 202 }
          return { token: yield* Effect.mapError(interventions.retry(orgId, uid, actor), fromStore) }
        }),
        pause: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller } = yield* RequestScope
          const { uid } = yield* targetRecord
          const until = payload.until === undefined ? null : DateTime.toDateUtc(payload.until)
          const pause = { scope: "resource", target: uid, reason: payload.reason, until } as const
          yield* Effect.mapError(
            interventions.pause(orgId, pause, { ...caller.actor, outcome: 202 }),
            fromStore
          )
          return ok
        }),
        resume: Effect.fnUntraced(function* () {
          const { orgId, caller } = yield* RequestScope
          const { uid } = yield* targetRecord
          const target = { scope: "resource", target: uid } as const
          yield* Effect.mapError(
            interventions.resume(orgId, target, { ...caller.actor, outcome: 202 }),
            fromStore
          )
          return ok
        }),
        protect: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller } = yield* RequestScope
          const record = yield* targetRecord
          yield* precondition(record)
          const { uid } = record
          yield* Effect.mapError(resources.protect(orgId, uid, payload.protected, caller.actor), fromStore)
          return payload
        }),
        abandon: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller } = yield* RequestScope
          const record = yield* targetRecord
          if (payload.confirm !== record.name) {
            return yield* invalid([{ pointer: "/confirm", message: `must repeat the name "${record.name}"` }])
          }
          const left = yield* Effect.mapError(
            interventions.abandon(orgId, record.uid, payload.reason, caller.actor),
            fromStore
          )
          if (Option.isNone(left)) {
            return yield* problem(
              409,
              "not_empty",
              `${record.kind} "${record.name}" still contains resources; abandon those first`
            )
          }
          return { leftBehind: left.value }
        }),
        pauseMany: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller } = yield* RequestScope
          const target = yield* pauseTarget(orgId, payload.scope, payload.target)
          const until = payload.until === undefined ? null : DateTime.toDateUtc(payload.until)
          const pause = { ...target, reason: payload.reason, until }
          yield* Effect.mapError(
            interventions.pause(orgId, pause, { ...caller.actor, outcome: 202 }),
            fromStore
          )
          return ok
        }),
        resumeMany: Effect.fnUntraced(function* ({ query }) {
          const { orgId, caller } = yield* RequestScope
          const target = yield* pauseTarget(orgId, query.scope, query.target)
          yield* Effect.mapError(
            interventions.resume(orgId, target, { ...caller.actor, outcome: 202 }),
            fromStore
          )
          return ok
        })
      })
    )
  })
)
