/**
 * Following resources (MCP 2026-07-28, `subscriptions/listen`): the changes of one organization, as its feed tells them,
 * for one stream. Nothing else is ever told on the bus that the stream listens to.
 */
import type { ServerEventBus } from "@modelcontextprotocol/server"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { Feed } from "#src/store/Feed.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { changedUris } from "./resources.ts"

/** Two steps: what happens after the first is told by the second, which goes on until the store is away. */
export const makeFollow = Effect.map(
  Feed,
  (feed) => (orgId: string) =>
    Effect.map(
      feed.head,
      (head) =>
        (bus: ServerEventBus): Effect.Effect<void, StoreUnavailable> =>
          Stream.runForEach(feed.follow(orgId, head), (change) =>
            Effect.sync(() => {
              for (const uri of changedUris(change)) bus.publish({ kind: "resource_updated", uri })
            })
          )
    )
)
