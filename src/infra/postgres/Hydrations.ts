/**
 * Filling the data folder of a server from somewhere else, which takes longer than a reconcile may: it goes on in the
 * background of this process while the reconciler looks at how far it is.
 *
 * Each run works in a folder of its own, `hydrating-<run>`, and the data gets its name only when it is whole. How far
 * it is stands in `hydration.json`, with a heartbeat: when the process is killed, the next one finds the heartbeat
 * old, removes what is half-made and begins again. A run that finds another run's name there stops.
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberMap from "effect/FiberMap"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { AppConfig } from "#src/config.ts"
import { ExternalCallHook, ExternalCallLog, externalCall, LeaseGuard } from "#src/engine/external-call.ts"
import { Host } from "../host/Host.ts"
import { makeTurns, type Turn } from "../host/turns.ts"
import type { PostgresTarget } from "./assigned.ts"
import { failed, PostgresServerError } from "./error.ts"
import { moved } from "./exchange.ts"
import { serverFolders } from "./folders.ts"
import { PostgresBinaries } from "./PostgresBinaries.ts"
import { endRecovery } from "./recovery.ts"

/** Why a run came to nothing. */
export class HydrationFault extends Schema.TaggedError<HydrationFault>()("HydrationFault", {
  code: Schema.Literals([
    "source_unavailable",
    "source_gone",
    "outside_window",
    "store_unavailable",
    "no_space",
    "copy_failed",
    "recovery_failed",
    "no_progress",
    "internal"
  ]),
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

const Control = Schema.Struct({
  run: Schema.String,
  fence: Schema.BigIntFromString,
  owner: Schema.Struct({ pid: Schema.Int, process: Schema.String }),
  state: Schema.Literals(["running", "failed", "given_up", "done"]),
  /** How many runs there were without success, this one included. */
  attempt: Schema.Int,
  step: Schema.String,
  doneBytes: Schema.Int,
  totalBytes: Schema.Int,
  startedAt: Schema.Int,
  heartbeatAt: Schema.Int,
  failure: Schema.optionalKey(
    Schema.Struct({
      code: HydrationFault.fields.code,
      step: Schema.String,
      detail: Schema.String,
      /** Set once a reconcile has reported it: what is asked for after that is another try. */
      told: Schema.Boolean
    })
  )
})
type Control = typeof Control.Type
const ControlText = Schema.fromJsonString(Control)

/** How far it is, as a reconcile sees it. */
export type Hydration = Control & {
  /** Whether somebody works on it. */
  readonly alive: boolean
}

/** What a run is given to work with. */
export interface Run {
  /** Short and unique. */
  readonly key: string
  /** Its own folder. */
  readonly folder: string
  /** Made by the run in its folder; becomes the server's data folder. */
  readonly data: string
  /** Begins a step; sizes are known for those that copy. */
  readonly step: (name: string, totalBytes?: number) => Effect.Effect<void>
  /** Bytes that are done of the step. */
  readonly advance: (bytes: number) => void
  /** Says that something happens, in a step without bytes. */
  readonly active: () => void
}

/** Longest time without any progress, once it has begun: whoever waits for a turn makes none. */
const stallMs = 600_000
const beatMs = 1_000
/** A heartbeat this old is of a process that is no more, or might as well be. */
const staleMs = 20_000
/** Copies share the disk: more at once make each slower. */
const atOnce = 2
/** What the step "queued" means, for people. */
export const waitsForTurn = `Waits for its turn: ${atOnce} copies at a time are made here; restores come first, and organizations take turns`

/** Where tests let a run die: called with each step's name. */
export const HydrationHook = Context.Reference<(step: string) => Effect.Effect<void>>(
  "svc/infra/HydrationHook",
  { defaultValue: () => () => Effect.void }
)

export class Hydrations extends Context.Service<
  Hydrations,
  {
    readonly inspect: (uid: string) => Effect.Effect<Hydration | undefined, PostgresServerError>
    /**
     * Starts a run unless one goes on; its step is "queued" until it has its turn. The server's folder must be claimed
     * by the same fence.
     */
    readonly begin: (
      target: PostgresTarget,
      turn: Turn,
      fill: (run: Run) => Effect.Effect<void, HydrationFault>
    ) => Effect.Effect<void, PostgresServerError>
    /** Notes that its failure was reported. */
    readonly told: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
    /** Ends what goes on, here or elsewhere, and removes what it made. */
    readonly cancel: (target: PostgresTarget) => Effect.Effect<void, PostgresServerError>
  }
>()("svc/infra/Hydrations") {
  static readonly layer = Layer.effect(
    Hydrations,
    Effect.gen(function* () {
      const host = yield* Host
      const programs = yield* PostgresBinaries
      const { dataDir } = yield* AppConfig
      const { dirOf, dataOf } = serverFolders(dataDir)
      const fibers = yield* FiberMap.make<string>()
      const turns = makeTurns(atOnce)
      const clock = yield* Clock.Clock
      const me = { pid: process.pid, process: randomBytes(8).toString("hex") }

      const fileOf = (uid: string) => path.join(dirOf(uid), "hydration.json")
      const read = Effect.fnUntraced(function* (uid: string) {
        const text = yield* Effect.mapError(host.readFile(fileOf(uid)), failed)
        if (Option.isNone(text)) return undefined
        return Option.getOrUndefined(
          yield* Effect.option(Schema.decodeUnknownEffect(ControlText)(text.value))
        )
      })
      const write = (uid: string, control: Control) =>
        Effect.flatMap(Effect.orDie(Schema.encodeEffect(ControlText)(control)), (text) =>
          Effect.mapError(host.writeFile(fileOf(uid), text), failed)
        )
      const isAlive = Effect.fnUntraced(function* (uid: string, control: Control) {
        if (control.state !== "running") return false
        if (control.owner.process === me.process) return FiberMap.hasUnsafe(fibers, uid)
        if (control.owner.pid !== me.pid && !(yield* host.isRunning(control.owner.pid, ""))) return false
        return (yield* Clock.currentTimeMillis) - control.heartbeatAt < staleMs
      })
      /** Later reconciles have taken over: nothing of this may touch what they make. */
      const refuseLate = Effect.fnUntraced(function* ({ uid, fence }: PostgresTarget) {
        const now = yield* read(uid)
        if (now === undefined || now.fence <= fence) return now
        return yield* new PostgresServerError({
          reason: "Fenced",
          message: `A later reconcile works on the data of the server ${uid}; this one stops`
        })
      })
      const sweep = Effect.fnUntraced(function* (uid: string) {
        const names = yield* Effect.promise(() => fs.readdir(dirOf(uid)).catch(() => []))
        for (const name of names.filter((one) => one.startsWith("hydrating-"))) {
          const folder = path.join(dirOf(uid), name)
          yield* endRecovery(path.join(folder, "data"), folder, name.slice("hydrating-".length)).pipe(
            Effect.provideService(Host, host),
            Effect.mapError(failed)
          )
          yield* Effect.mapError(host.removeAll(folder), failed)
        }
      })

      /** The whole of one run. Its end is written down, whatever it is. */
      const work = (
        uid: string,
        first: Control,
        turn: Turn,
        fill: (run: Run) => Effect.Effect<void, HydrationFault>
      ): Effect.Effect<void> => {
        let now = first
        let activeAt: number | undefined
        const folder = path.join(dirOf(uid), `hydrating-${first.run}`)
        const mine = Effect.map(read(uid), (control) => control?.run === first.run)
        const note = Effect.fnUntraced(function* (change: Partial<Control>) {
          now = { ...now, ...change, heartbeatAt: yield* Clock.currentTimeMillis }
          if (!(yield* mine)) return yield* Effect.interrupt
          yield* write(uid, now)
        })
        const beat = Effect.gen(function* () {
          for (;;) {
            yield* Effect.sleep(beatMs)
            yield* note({})
            if (activeAt !== undefined && (yield* Clock.currentTimeMillis) - activeAt > stallMs) {
              return yield* new HydrationFault({
                code: "no_progress",
                message: `Nothing has happened for ${stallMs / 60_000} minutes`
              })
            }
          }
        })
        const active = () => {
          activeAt = clock.currentTimeMillisUnsafe()
        }
        const run: Run = {
          key: first.run,
          folder,
          data: path.join(folder, "data"),
          active,
          advance: (bytes) => {
            active()
            now = { ...now, doneBytes: now.doneBytes + bytes }
          },
          step: (name, totalBytes) =>
            Effect.gen(function* () {
              active()
              yield* note({ step: name, ...(totalBytes === undefined ? {} : { totalBytes, doneBytes: 0 }) })
              yield* (yield* HydrationHook)(name)
            }).pipe(Effect.orDie)
        }
        const all = Effect.gen(function* () {
          active()
          yield* host.directory(folder)
          yield* fill(run)
          yield* run.step("hand over")
          // A folder that was swept away, or a data folder that came from elsewhere, fails the rename.
          yield* Effect.mapError(
            moved(run.data, dataOf(uid)),
            (cause) =>
              new HydrationFault({ code: "internal", message: "The data folder could not be named", cause })
          )
          yield* Effect.ignore(host.removeAll(folder))
          yield* note({ state: "done" })
        }).pipe(
          turns.take(turn),
          Effect.raceFirst(beat),
          Effect.provideService(Host, host),
          Effect.provideService(PostgresBinaries, programs)
        )
        return Effect.onExit(all, (exit) =>
          Effect.gen(function* () {
            if (Exit.isSuccess(exit)) return
            // What cannot be removed just now, because a process that was killed still writes, the next run sweeps.
            yield* Effect.ignore(host.removeAll(folder))
            if (Cause.hasInterruptsOnly(exit.cause)) {
              if (yield* mine) yield* write(uid, { ...now, state: "given_up" })
              return
            }
            const fault = faultOf(exit.cause)
            if (fault.code === "internal")
              yield* Effect.logError("a data folder could not be filled", exit.cause)
            if (!(yield* mine)) return
            yield* Effect.ignore(sweep(uid))
            yield* write(uid, {
              ...now,
              state: "failed",
              failure: { code: fault.code, step: now.step, detail: fault.message, told: false }
            })
          }).pipe(
            Effect.catchCause((cause) =>
              Effect.logWarning("the end of a hydration could not be noted", cause)
            )
          )
        ).pipe(Effect.ignore)
      }

      return Hydrations.of({
        inspect: Effect.fn("Hydrations.inspect")(
          function* (uid) {
            const control = yield* read(uid)
            return control === undefined ? undefined : { ...control, alive: yield* isAlive(uid, control) }
          },
          externalCall("hydration.inspect", "read")
        ),

        begin: Effect.fn("Hydrations.begin")(function* (target, turn, fill) {
          const { uid, fence } = target
          const before = yield* refuseLate(target)
          if (before !== undefined && (yield* isAlive(uid, before))) return
          yield* externalCall(
            "hydration.begin",
            "write"
          )(
            Effect.gen(function* () {
              const startedAt = yield* Clock.currentTimeMillis
              const first: Control = {
                run: randomBytes(5).toString("hex"),
                fence,
                owner: me,
                state: "running",
                // One that never had its turn was no try.
                attempt:
                  before?.step === "queued" && before.state !== "failed"
                    ? before.attempt
                    : (before?.attempt ?? 0) + 1,
                step: "queued",
                doneBytes: 0,
                totalBytes: 0,
                startedAt,
                heartbeatAt: startedAt
              }
              // From here on an earlier run, wherever it is, stops at its next look.
              yield* write(uid, first)
              yield* sweep(uid)
              yield* FiberMap.run(
                fibers,
                uid,
                work(uid, first, turn, fill).pipe(
                  // It outlives the reconcile that begins it, and that one's lease.
                  Effect.provideService(ExternalCallHook, undefined),
                  Effect.provideService(ExternalCallLog, undefined),
                  Effect.provideService(LeaseGuard, Effect.void)
                )
              )
            })
          )
        }),

        told: Effect.fn("Hydrations.told")(function* (target) {
          const now = yield* refuseLate(target)
          if (now?.failure === undefined || now.failure.told) return
          const { failure } = now
          yield* externalCall(
            "hydration.told",
            "write"
          )(write(target.uid, { ...now, fence: target.fence, failure: { ...failure, told: true } }))
        }),

        cancel: Effect.fn("Hydrations.cancel")(function* (target) {
          const { uid, fence } = target
          const now = yield* refuseLate(target)
          if (now === undefined) return
          yield* externalCall(
            "hydration.cancel",
            "write"
          )(
            Effect.gen(function* () {
              yield* write(uid, { ...now, run: "none", fence, state: "given_up" })
              yield* FiberMap.remove(fibers, uid)
              yield* sweep(uid)
            })
          )
        })
      })
    })
  )
}

const faultOf = (cause: Cause.Cause<unknown>): HydrationFault => {
  const error = Cause.squash(cause)
  if (error instanceof HydrationFault) return error
  return new HydrationFault({
    code: "internal",
    message: "An internal fault, which the log tells of",
    cause: error
  })
}
