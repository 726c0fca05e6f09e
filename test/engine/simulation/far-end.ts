/**
 * What the simulated resources stand for: things with a size, somewhere behind a network. The far end refuses whoever
 * carries a lower fence than somebody before, and its things change by themselves now and then.
 *
 * The reconcilers over it do everything that a reconciler may do: several steps, waiting for another resource, being
 * slow, failing for a while or for good, hanging, and finding out late that they may not.
 */
import * as Effect from "effect/Effect"
import { identity } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { defineKind } from "#schemas/kind.ts"
import { type ExternalEffect, externalCall } from "#src/engine/external-call.ts"
import {
  absent,
  type Observation,
  type Resource,
  Retryable,
  register,
  Terminal,
  Waiting
} from "#src/engine/Reconciler.ts"
import { noLease } from "#src/engine/WorkStore.ts"
import type { Connection } from "./connection.ts"
import type { Timeline } from "./machines.ts"
import type { Watcher } from "./watcher.ts"

export const ThingSpec = Schema.Struct({
  size: Schema.Int,
  /** Must be ready before this one is made. */
  needs: Schema.NullOr(Schema.String),
  /** `impossible` is refused for good; `hopeless` never becomes ready. */
  nature: Schema.Literals(["plain", "impossible", "hopeless"])
})
export type ThingSpec = typeof ThingSpec.Type
const ThingStatus = Schema.Struct({ size: Schema.Int })
type ThingResource = Resource<ThingSpec, typeof ThingStatus.Type>

const base = {
  summary: "Exists in simulations only.",
  scope: "environment",
  immutable: [],
  internal: [],
  generated: [],
  references: [],
  singleton: false,
  deleteRole: "admin",
  reasons: {}
} as const

const Thing = defineKind({
  ...base,
  name: "Thing",
  spec: ThingSpec,
  status: ThingStatus,
  fields: ["size", "needs", "nature"],
  deadlineSeconds: 20
})
const Box = defineKind({
  ...base,
  name: "Box",
  spec: Schema.Struct({}),
  status: Schema.Struct({}),
  fields: [],
  deadlineSeconds: 20
})

/**
 * What the engine's gate leaves of a lease of six seconds when it lets a write pass. One that is under way for longer can
 * outlast the lease, and be overtaken by a removal, whatever the engine does.
 */
const longestWriteMs = 1_000

interface ThingOutThere {
  size: number
  readyAt: number
  /** When it will have disappeared. */
  goneAt: number | null
}

/**
 * Whom the far end refuses when somebody newer was there before: whoever looks or writes, only whoever writes (it does
 * not learn of a newer one that has only looked), or nobody, which the watcher must notice.
 */
export type Fenced = "looks and writes" | "writes" | "nothing"

export interface FarEndOptions {
  readonly fenced: Fenced
  /** Runs write without asking whether they still may, which the watcher must notice. */
  readonly heedless: boolean
  /** How long a run that cannot be interrupted keeps others away. */
  readonly clingMs: number
}

export class FarEnd {
  readonly things = new Map<string, ThingOutThere>()
  /** Probability that a call goes wrong; zero once faults have stopped. */
  trouble = 0
  /** How often a call that goes wrong hangs and cannot be interrupted. */
  clinging = 0
  /** How long a call takes beside its way through the network, at most. */
  slownessMs = 0
  readonly #fences = new Map<string, bigint>()
  readonly #timeline: Timeline
  readonly #watcher: Watcher
  readonly #options: FarEndOptions

  constructor(timeline: Timeline, watcher: Watcher, options: FarEndOptions) {
    this.#timeline = timeline
    this.#watcher = watcher
    this.#options = options
  }

  find(uid: string): ThingOutThere | undefined {
    const thing = this.things.get(uid)
    if (thing === undefined || thing.goneAt === null || thing.goneAt > this.#timeline.now) return thing
    this.things.delete(uid)
    return undefined
  }

  #admit({ uid, fence }: ThingResource, effect: ExternalEffect): boolean {
    const { fenced } = this.#options
    if (effect === "read" && fenced !== "looks and writes") return true
    // A look without a lease.
    if (effect === "read" && fence === noLease) return true
    const before = this.#fences.get(uid) ?? 0n
    if (fence < before && fenced !== "nothing") {
      this.#watcher.counts.fenced++
      return false
    }
    this.#fences.set(uid, fence > before ? fence : before)
    return true
  }

  layer(machine: string, connection: Connection, concurrency: number, driftIntervalMs: number) {
    const { random } = this.#timeline
    /** One call over the network, with what may happen to it. */
    const call = <A>(resource: ThingResource, effect: ExternalEffect, act: () => A) =>
      Effect.gen({ self: this }, function* () {
        if (this.slownessMs > 0) yield* Effect.sleep(this.slownessMs * random.between(0.5, 1))
        if (random.chance(this.trouble)) {
          const kind = random.weighted([
            [6, "refused"],
            [3, "slow"],
            [2, "defect"],
            [1, "hangs"],
            [this.clinging, "clings"]
          ])
          if (kind === "refused") return yield* new Retryable({ message: "The far end is not well" })
          if (kind === "defect") return yield* Effect.die(new Error("a bug in a reconciler"))
          if (kind === "hangs") return yield* Effect.never
          if (kind === "clings") {
            this.#watcher.fault(
              `${machine} clings to ${resource.uid} #${resource.fence}`,
              this.#options.clingMs
            )
            return yield* Effect.uninterruptible(Effect.never)
          }
          yield* Effect.sleep(random.between(500, 12_000))
        }
        const request = (this.#options.heedless ? identity : externalCall("thing", effect))(
          connection.farCall(
            () =>
              this.#admit(resource, effect)
                ? { _tag: "Done" as const, value: act() }
                : { _tag: "Fenced" as const },
            effect === "write" ? longestWriteMs : undefined
          )
        )
        const answer = yield* random.chance(0.1) ? Effect.uninterruptible(request) : request
        if (answer._tag === "Fenced") return yield* new Retryable({ message: "Somebody newer is at it" })
        return answer.value
      })
    const write = (resource: ThingResource, what: string, act: () => void) =>
      call(resource, "write", () => {
        act()
        this.#watcher.wrote(machine, resource.uid, resource.fence, what)
      })

    const things = register(
      Thing,
      { driftInterval: driftIntervalMs, concurrency },
      Effect.succeed({
        observe: (resource) =>
          call(resource, "read", (): Observation<typeof ThingStatus.Type> => {
            const { now } = this.#timeline
            const thing = this.find(resource.uid)
            if (thing === undefined) return absent
            const { size, readyAt, goneAt } = thing
            const ready = readyAt <= now && goneAt === null && resource.spec.nature !== "hopeless"
            const differs = size !== resource.spec.size || goneAt !== null
            return {
              _tag: "Present",
              status: { size },
              ready,
              differences: differs ? [{ field: "/size", message: `is ${size}` }] : [],
              ...(ready ? {} : { pollAfter: readyAt > now ? Math.max(200, readyAt - now) : 2_000 })
            }
          }),
        converge: Effect.fnUntraced(function* (this: FarEnd, resource: ThingResource) {
          const { needs, nature, size } = resource.spec
          if (nature === "impossible") return yield* new Terminal({ message: "There is no such thing" })
          if (needs !== null && !(yield* connection.isReady(needs)))
            return yield* new Waiting({ message: "Another thing must be ready first", on: needs })
          yield* write(resource, "writes", () => {
            const now = this.#timeline.now
            const thing = this.find(resource.uid)
            const readyAt = now + (random.chance(0.5) ? 0 : random.between(0, 3_000))
            // Made in one step and sized in the next.
            if (thing === undefined) this.things.set(resource.uid, { size: 0, readyAt, goneAt: null })
            else if (thing.goneAt === null) Object.assign(thing, { size, readyAt })
          })
        }).bind(this),
        remove: (resource) =>
          write(resource, "removes", () => {
            const thing = this.find(resource.uid)
            if (thing !== undefined) thing.goneAt ??= this.#timeline.now + random.pick([0, 0, 1_500])!
          })
      })
    )
    const boxes = register(
      Box,
      { driftInterval: driftIntervalMs, concurrency },
      Effect.succeed({
        observe: (resource) =>
          Effect.succeed<Observation<Record<string, never>>>(
            resource.deleting ? absent : { _tag: "Present", status: {}, ready: true, differences: [] }
          ),
        converge: () => Effect.void,
        remove: () => Effect.void
      })
    )
    return Layer.mergeAll(things, boxes)
  }
}
