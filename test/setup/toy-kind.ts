/** A kind whose outside world is a map in memory, for tests of the engine. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { defineKind } from "#schemas/kind.ts"
import {
  absent,
  type Observation,
  type ReconcileError,
  type RegistrationOptions,
  type Resource,
  register
} from "#src/engine/Reconciler.ts"

const ToySpec = Schema.Struct({ size: Schema.Int })
export const ToyStatus = Schema.Struct({ size: Schema.Int })
type Present = Extract<Observation<unknown>, { readonly _tag: "Present" }>
type ToyResource = Resource<typeof ToySpec.Type, typeof ToyStatus.Type>

export const Toy = defineKind({
  name: "Cache",
  summary: "A toy.",
  scope: "environment",
  // As the real kind of this name, whose rows these are.
  placement: "host",
  spec: ToySpec,
  status: ToyStatus,
  fields: ["size"],
  immutable: [],
  internal: [],
  generated: [],
  references: [],
  singleton: false,
  deleteRole: "admin",
  reasons: {},
  deadlineSeconds: 60
})

export interface World {
  readonly things: Map<string, number>
  /** Highest fence seen for each thing: a lower one is refused, as by a real far end. */
  readonly fences: Map<string, bigint>
  readonly log: Array<{ readonly uid: string; readonly what: "observe" | "converge" | "remove" }>
  /** What its observations tell besides. A step takes the maintenance away. */
  readonly asides: Map<string, Partial<Pick<Present, "ready" | "maintenance" | "note" | "pollAfter">>>
  /** Runs inside each function: sleeps, failures. */
  behave: (
    what: "observe" | "converge" | "remove",
    resource: ToyResource
  ) => Effect.Effect<void, ReconcileError>
}

export const makeWorld = (): World => ({
  things: new Map(),
  fences: new Map(),
  log: [],
  asides: new Map(),
  behave: () => Effect.void
})

export const toyLayer = (
  world: World,
  options: RegistrationOptions = { driftInterval: "1 hour", concurrency: 64 }
) =>
  register(
    Toy,
    options,
    Effect.sync(() => {
      const enter = (what: "observe" | "converge" | "remove", resource: ToyResource) =>
        Effect.suspend(() => {
          world.log.push({ uid: resource.uid, what })
          return world.behave(what, resource)
        })
      return {
        observe: (resource) =>
          Effect.map(enter("observe", resource), () => {
            const size = world.things.get(resource.uid)
            return size === undefined
              ? absent
              : {
                  _tag: "Present" as const,
                  status: { size },
                  ready: true,
                  ...world.asides.get(resource.uid),
                  differences:
                    size === resource.spec.size
                      ? []
                      : [{ field: "/size", message: `is ${size} and should be ${resource.spec.size}` }]
                }
          }),
        converge: (resource) =>
          Effect.andThen(
            enter("converge", resource),
            Effect.sync(() => {
              world.things.set(resource.uid, resource.spec.size)
              const { maintenance: _, ...rest } = world.asides.get(resource.uid) ?? {}
              if (world.asides.has(resource.uid)) world.asides.set(resource.uid, rest)
            })
          ),
        remove: (resource) =>
          Effect.andThen(
            enter("remove", resource),
            Effect.sync(() => void world.things.delete(resource.uid))
          )
      }
    })
  )
