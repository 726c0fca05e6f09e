/**
 * Following resources (MCP 2026-07-28, `subscriptions/listen`): the changes of one organization, as its feed tells them,
 * for one stream. Nothing else is ever told on the bus that the stream listens to.
 */
import type { ServerEventBus } from "@modelcontextprotocol/server"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import { type Change, Feed } from "#src/store/Feed.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { manifestUri, urisOf } from "./resources.ts"

/** URIs that one stream may follow. */
export const mostFollowed = 1_000
/** Messages that wait for a client that reads slowly; then the feed waits, too. */
const mostUnread = 64

export interface Following {
  /** Tells changes from the moment on at which this was made, until the store is away. */
  readonly tellOn: (bus: ServerEventBus) => Effect.Effect<void, StoreUnavailable>
  /** To be run for each message that the client has taken. */
  readonly taken: Effect.Effect<void>
}

export const makeFollow = Effect.map(Feed, (feed) =>
  Effect.fnUntraced(function* (
    orgId: string,
    uris: ReadonlyArray<unknown>
  ): Effect.fn.Return<Following, StoreUnavailable> {
    const wanted = new Set(uris)
    const changed = makeChanged()
    const head = yield* feed.head
    const unread = yield* Queue.bounded<void>(mostUnread)
    return {
      tellOn: (bus) =>
        Stream.runForEach(feed.follow(orgId, head), (change) =>
          Effect.forEach(
            changed(change).filter((uri) => wanted.has(uri)),
            (uri) =>
              Effect.andThen(
                Queue.offer(unread, undefined),
                Effect.sync(() => bus.publish({ kind: "resource_updated", uri }))
              ),
            { discard: true }
          )
        ),
      taken: Effect.asVoid(Queue.poll(unread))
    }
  })
)

/** Generations that are remembered; forgetting them only tells more often than needed. */
const mostRemembered = 10_000

/**
 * URIs whose content a change changes. The feed shows how things are, not what was done: the manifest has changed where a
 * resource is of another generation than the last time.
 */
const makeChanged = () => {
  const generations = new Map<string, number>()
  return ({ deleted, record: { uid, generation } }: Change): ReadonlyArray<string> => {
    const isSpecified = deleted || generations.get(uid) !== generation
    if (generations.size >= mostRemembered) generations.clear()
    if (deleted) generations.delete(uid)
    else generations.set(uid, generation)
    return isSpecified ? [...urisOf(uid), manifestUri] : urisOf(uid)
  }
}
