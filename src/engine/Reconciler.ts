/**
 * How a kind of resource becomes real: three functions about the outside world, and nothing else.
 *
 * A reconciler is level-triggered. It gets the resource as it is now, never the event that woke it, and it
 * never branches on "the first time": it compares what is there with what was asked for and takes the
 * smallest step. Running it again is always safe, because
 *
 * - `observe` looks and never touches;
 * - `converge` derives every outside name from `resource.uid`, so that a repeated step finds what an earlier,
 *   interrupted one made;
 * - `remove` takes away what it finds, and finding nothing is success.
 *
 * The engine composes the three: it observes, and when something differs takes one step and observes again;
 * what it records is always an observation. Order, retries, backoff, deadlines, conditions, events, drift
 * reports, pausing, adoption and deletion are the engine's and work alike for every kind.
 */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type { Difference } from "#schemas/difference.ts"
import { deepestJson, isTooDeep } from "#schemas/json-depth.ts"
import type { Kind, NoFacts } from "#schemas/kind.ts"
import { storableJson } from "#src/storable.ts"
import { WaitTarget } from "./WorkStore.ts"

export type { Difference }

/** A resource as the engine hands it to its reconciler. */
export interface Resource<out Spec = unknown, out Status = unknown, out Facts = NoFacts> {
  readonly orgId: string
  readonly uid: string
  readonly kind: string
  readonly projectId: string | null
  readonly environment: string | null
  readonly name: string
  readonly parentUid: string | null
  readonly spec: Spec
  readonly generation: number
  /** What the last observation stored; `null` before the first. Never the base of a comparison. */
  readonly status: Status | null
  /** What observations have found to stay true, whether or not it can be seen now. */
  readonly facts: Facts
  readonly deleting: boolean
  /** Fencing number of this run: higher than every earlier run's. Far ends that we own refuse lower ones. */
  readonly fence: bigint
}

export type Observation<Status, Facts = NoFacts> =
  | { readonly _tag: "Absent" }
  | {
      readonly _tag: "Present"
      readonly status: Status
      /** Whether users can rely on it now. */
      readonly ready: boolean
      readonly differences: ReadonlyArray<Difference>
      /** Why it is not ready: a reason of the kind and a sentence. */
      readonly reason?: string
      readonly message?: string
      /** When it is on its way by itself: how soon to look again. */
      readonly pollAfter?: Duration.Input
      /** What differs and takes a step, although users can rely on it as it is. */
      readonly maintenance?: ReadonlyArray<Difference>
      /** Worth telling while it is ready, instead of that all is well. */
      readonly note?: { readonly reason: string; readonly message: string }
      /**
       * What was found to stay true. New facts are stored before the next step is taken, so a step may rely on them
       * after a crash at any moment.
       */
      readonly facts?: Facts
      /** What the new facts say has happened: told once, as a Warning event that is stored together with them. */
      readonly happened?: { readonly reason: string; readonly message: string }
    }

export const absent: { readonly _tag: "Absent" } = { _tag: "Absent" }

/** Something went wrong that may go right later: tried again with exponential backoff and full jitter. */
export class Retryable extends Schema.TaggedError<Retryable>()("Retryable", {
  /** A sentence that names what was attempted on what. Shown to users: no secrets. */
  message: Schema.String,
  /** A reason of the kind or of the engine. */
  reason: Schema.optionalKey(Schema.String),
  /**
   * When to try again, instead of by the backoff, and never counting as stalled: for a far end that is away for a while,
   * where the kind has a deadline of its own.
   */
  againAfterMs: Schema.optionalKey(Schema.Finite),
  cause: Schema.optionalKey(Schema.Defect())
}) {}

/** The specification cannot be satisfied: not tried again until it changes or somebody asks. */
export class Terminal extends Schema.TaggedError<Terminal>()("Terminal", {
  message: Schema.String,
  reason: Schema.optionalKey(Schema.String),
  cause: Schema.optionalKey(Schema.Defect())
}) {}

/** Another resource must come or change first; the engine wakes this one when it does. */
export class Waiting extends Schema.TaggedError<Waiting>()("Waiting", {
  message: Schema.String,
  reason: Schema.optionalKey(Schema.String),
  /** Uid of the resource that is waited for, or its kind, place and name where it may not exist yet. */
  on: WaitTarget
}) {}

export type ReconcileError = Retryable | Terminal | Waiting

/** The three functions of a kind. */
export interface Reconciler<in Spec, in out Status, in out Facts = NoFacts> {
  readonly observe: (
    resource: Resource<Spec, Status, Facts>
  ) => Effect.Effect<Observation<Status, Facts>, ReconcileError>
  readonly converge: (
    resource: Resource<Spec, Status, Facts>,
    observation: Observation<Status, Facts>
  ) => Effect.Effect<void, ReconcileError>
  readonly remove: (
    resource: Resource<Spec, Status, Facts>,
    observation: Observation<Status, Facts>
  ) => Effect.Effect<void, ReconcileError>
}

export interface RegistrationOptions {
  /** How often a ready resource is looked at again. The engine adds jitter. */
  readonly driftInterval: Duration.Input
  /** How many may be worked on at once in one process. */
  readonly concurrency: number
}

/** A reconciler whose types are closed over: decoding and encoding happen at its border. */
export interface Registration extends RegistrationOptions {
  readonly kind: Kind
  readonly reconciler: Reconciler<unknown, unknown>
}

/** Every registered kind. The engine reads it once, when it starts. */
export class Registry extends Context.Service<
  Registry,
  {
    readonly registrations: ReadonlyMap<string, Registration>
    readonly register: (registration: Registration) => Effect.Effect<void>
  }
>()("svc/engine/Registry") {
  static readonly layer = Layer.sync(Registry, () => {
    const registrations = new Map<string, Registration>()
    return Registry.of({
      registrations,
      register: (registration) =>
        Effect.suspend(() => {
          if (registrations.has(registration.kind.name)) {
            return Effect.die(new Error(`The kind ${registration.kind.name} has two reconcilers`))
          }
          registrations.set(registration.kind.name, registration)
          return Effect.void
        })
    })
  })
}

/**
 * Registers the reconciler of a kind. `make` takes the adapters it needs from the context, so the compiler
 * checks in `main.ts` that all of them are there.
 *
 * @example
 * export const layer = register(Cache, { driftInterval: "1 minute", concurrency: 8 },
 *   Effect.gen(function* () {
 *     const servers = yield* RedisServers
 *     return { observe: ..., converge: ..., remove: ... }
 *   }))
 */
export const register = <Name extends string, Spec, Status, Facts, E, R>(
  kind: Kind<Name, Spec, Status, Facts>,
  options: RegistrationOptions,
  make: Effect.Effect<Reconciler<Spec, Status, Facts>, E, R>
): Layer.Layer<never, E, R | Registry> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const registry = yield* Registry
      yield* registry.register({ ...options, kind, reconciler: closeOver(kind, yield* make) })
    })
  )

/**
 * A stored specification that no longer decodes is not tried again until it changes. It must not stand in the way of a
 * deletion, though: what is removed is found by its uid, so `remove` then gets what is stored as it is.
 */
const specDecoder = <Spec>(kind: Pick<Kind<string, Spec>, "spec">) => {
  const decode = Schema.decodeUnknownEffect(kind.spec)
  return ({ spec, deleting }: Resource): Effect.Effect<Spec, Terminal> => {
    const decoded = isTooDeep(spec)
      ? Effect.fail({ message: `it is nested deeper than ${deepestJson} levels` })
      : decode(spec)
    return Effect.catch(decoded, ({ message }) =>
      deleting
        ? Effect.succeed(spec as Spec)
        : Effect.fail(
            new Terminal({
              message: `The stored specification is not valid: ${message}`,
              reason: "InvalidSpec"
            })
          )
    )
  }
}

/** Decodes what is stored on the way in, and encodes status and facts on the way out. */
const closeOver = <Spec, Status, Facts>(
  kind: Kind<string, Spec, Status, Facts>,
  reconciler: Reconciler<Spec, Status, Facts>
): Reconciler<unknown, unknown> => {
  const decodeSpec = specDecoder(kind)
  const decodeStatus = Schema.decodeUnknownEffect(kind.status)
  const encodeStatus = Schema.encodeEffect(kind.status)
  const decodeFacts = Schema.decodeUnknownEffect(kind.facts)
  const encodeFacts = Schema.encodeEffect(kind.facts)

  const decode = Effect.fnUntraced(function* (resource: Resource) {
    const spec = yield* decodeSpec(resource)
    // A status that no longer decodes is as good as none: the next observation replaces it.
    const status =
      resource.status === null
        ? null
        : yield* Effect.catch(decodeStatus(resource.status), () => Effect.succeed(null))
    // A step that guards data must not take facts that it cannot read for none. Removal makes nothing.
    const facts = yield* Effect.mapError(
      decodeFacts(resource.deleting ? {} : resource.facts),
      (error) =>
        new Retryable({
          message: `What is known of it for good cannot be read, so nothing is changed: ${error.message}`,
          reason: "FactsUnreadable"
        })
    )
    return { ...resource, spec, status, facts }
  })
  const decodeObservation = (
    observation: Observation<unknown>
  ): Effect.Effect<Observation<Status, Facts>, ReconcileError> =>
    observation._tag === "Absent"
      ? Effect.succeed(absent)
      : Effect.all([decodeStatus(observation.status), decodeFacts(observation.facts ?? {})]).pipe(
          Effect.matchEffect({
            onFailure: () => Effect.die(new Error(`${kind.name}: an observation does not decode`)),
            onSuccess: ([status, facts]) => Effect.succeed({ ...observation, status, facts })
          })
        )
  const encodeObservation = Effect.fnUntraced(function* (observation: Observation<Status, Facts>) {
    if (observation._tag === "Absent") return absent
    const { facts: found, ...rest } = observation
    const status = storableJson(yield* encodeStatus(observation.status))
    const encoded: Observation<unknown> =
      found === undefined ? { ...rest, status } : { ...rest, status, facts: yield* encodeFacts(found) }
    return encoded
  }, Effect.orDie)

  return {
    observe: Effect.fnUntraced(function* (resource) {
      return yield* encodeObservation(yield* reconciler.observe(yield* decode(resource)))
    }),
    converge: Effect.fnUntraced(function* (resource, observation) {
      yield* reconciler.converge(yield* decode(resource), yield* decodeObservation(observation))
    }),
    remove: Effect.fnUntraced(function* (resource, observation) {
      yield* reconciler.remove(yield* decode(resource), yield* decodeObservation(observation))
    })
  }
}
