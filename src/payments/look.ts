/** One object at Stripe, asked for anew and stored as it is. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Connection } from "./Connections.ts"
import { seen, wasDeleted } from "./objects.ts"
import type { Processor } from "./Processor.ts"
import type { ProcessorError } from "./ProcessorError.ts"
import type { Projections } from "./Projections.ts"
import { listPaths, type ObjectType } from "./scopes.ts"

export type Looked = "stored" | "gone" | "unknown_shape"

/** `askedAt` is of the store's clock, read before. */
export const look = Effect.fnUntraced(function* (
  services: {
    readonly processor: Processor["Service"]
    readonly projections: Projections["Service"]
  },
  connection: Connection,
  object: { readonly type: ObjectType; readonly id: string },
  askedAt: Date
): Effect.fn.Return<Looked, ProcessorError | StoreUnavailable> {
  const { processor, projections } = services
  const found = yield* processor
    .ask(`stripe.${object.type}.get`, {
      key: connection.secretKey,
      method: "GET",
      path: `${listPaths[object.type]}/${encodeURIComponent(object.id)}`
    })
    .pipe(
      Effect.catchIf(
        ({ reason }) => reason === "missing",
        () => Effect.succeed({ id: object.id, deleted: true })
      )
    )
  if (wasDeleted(found)) {
    yield* projections.remove(connection, askedAt, [object.id])
    return "gone"
  }
  const one = seen(found)
  if (Option.isNone(one)) return "unknown_shape"
  yield* projections.store(connection, askedAt, [one.value])
  return "stored"
})
