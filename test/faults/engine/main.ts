/** A process of its own with the real engine over the real store. Its only kind keeps things in the place outside. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { externalCall } from "#src/engine/external-call.ts"
import { defaults, EngineOptions } from "#src/engine/options.ts"
import { absent, Registry, type Resource, Retryable, register } from "#src/engine/Reconciler.ts"
import * as Worker from "#src/engine/Worker.ts"
import { Db } from "#src/store/Db.ts"
import * as Work from "#src/store/Work.ts"
import { type Line, openPlace } from "./place.ts"
import { Settings, Thing, type ThingSpec } from "./settings.ts"

const settings = Schema.decodeUnknownSync(Schema.fromJsonString(Settings))(process.argv[2])
const place = openPlace(settings.place, settings.fenced)

type ThingResource = Resource<ThingSpec, { readonly size: number }>

const told = (call: Line["call"], { uid, fence }: ThingResource) => {
  const line = { process: settings.name, uid, fence: Number(fence), call }
  return (what: Line["what"]) => Effect.sync(() => place.note({ ...line, what }))
}
/** A call is written down when it begins and however it ends. */
const recorded = <A, E>(call: Line["call"], resource: ThingResource, self: Effect.Effect<A, E>) => {
  const tell = told(call, resource)
  return Effect.andThen(tell("begins"), Effect.ensuring(self, tell("ends")))
}
const write = Effect.fnUntraced(function* (
  call: "converge" | "remove",
  resource: ThingResource,
  size: number | null
) {
  yield* Effect.sleep(resource.spec.writeMs)
  const taken = yield* Effect.sync(() => place.write(resource.uid, Number(resource.fence), size))
  yield* told(call, resource)(taken ? "writes" : "is refused")
  if (!taken) return yield* new Retryable({ message: "Somebody newer was here" })
})

const things = register(
  Thing,
  { driftInterval: settings.driftMs, concurrency: settings.concurrency },
  Effect.succeed({
    observe: (resource) =>
      recorded(
        "observe",
        resource,
        Effect.sleep(resource.spec.lookMs).pipe(
          Effect.map(() => {
            const size = place.size(resource.uid)
            if (size === undefined) return absent
            const differs = size !== resource.spec.size
            return {
              _tag: "Present" as const,
              status: { size },
              ready: true,
              differences: differs ? [{ field: "/size", message: `is ${size}` }] : []
            }
          })
        )
      ),
    converge: (resource) =>
      externalCall(
        "thing.write",
        "write"
      )(recorded("converge", resource, write("converge", resource, resource.spec.size))),
    remove: (resource) =>
      externalCall("thing.remove", "write")(recorded("remove", resource, write("remove", resource, null)))
  })
)

const { leaseMs, heartbeatMs, pollMs } = settings
const engine = Worker.layer.pipe(
  Layer.provide(things),
  Layer.provide(Registry.layer),
  Layer.provide(Work.layer),
  Layer.provide(Work.signal),
  Layer.provide(
    Layer.succeed(EngineOptions, { ...defaults, leaseMs, heartbeatMs, pollMs, backoffMs: [50, 500] })
  ),
  Layer.provide(Db.layer({ url: Redacted.make(settings.databaseUrl) }))
)
NodeRuntime.runMain(Layer.launch(engine))
