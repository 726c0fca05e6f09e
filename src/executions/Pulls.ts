/**
 * Fetching images takes longer than a reconcile may: it goes on in the background of this process, and reconciles look
 * how far it is. A process that ends takes its fetching along; the next one begins again.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as Layer from "effect/Layer"
import { inBackground } from "#src/engine/in-background.ts"
import type { PulledImage, PullRequest } from "#src/infra/containers/ContainerEngine.ts"
import { makeTurns } from "#src/infra/host/turns.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { Images } from "./Images.ts"
import { parseImage } from "./image.ts"
import { ExecutionOptions } from "./options.ts"
import { type RunRef, Runs } from "./Runs.ts"

export type Pull =
  | { readonly _tag: "Queued" }
  /** `since`: when its turn came, by the clock of this process. */
  | { readonly _tag: "Pulling"; readonly since: number }
  | { readonly _tag: "Pulled"; readonly image: PulledImage }
  | {
      readonly _tag: "Failed"
      readonly errorCode: "image_pull_failed" | "image_not_found"
      readonly message: string
    }

export interface PullsService {
  /** Undefined: nobody fetches it in this process. */
  readonly look: (uid: string) => Pull | undefined
  readonly start: (ref: RunRef, request: PullRequest) => Effect.Effect<void>
  /** Stops it and forgets what it came to. */
  readonly stop: (uid: string) => Effect.Effect<void>
  /** Stops what is of no use any more, because other processes went on with it. Answers how many. */
  readonly sweep: Effect.Effect<number, StoreUnavailable>
}

export interface PullsFor {
  /** Of these, the ones whose image is still waited for. */
  readonly wantingImage: (refs: ReadonlyArray<RunRef>) => Effect.Effect<ReadonlySet<string>, StoreUnavailable>
  readonly wakeReconciler: (ref: RunRef) => Effect.Effect<void, StoreUnavailable>
}

export const makePulls = Effect.fnUntraced(function* ({ wantingImage, wakeReconciler }: PullsFor) {
  const images = yield* Images
  const options = yield* ExecutionOptions
  const states = new Map<string, { readonly ref: RunRef; readonly pull: Pull }>()
  const fibers = yield* FiberMap.make<string>()
  const turns = makeTurns(options.pulls, options.pullsPerOrg)

  const pull = Effect.fnUntraced(function* (uid: string, request: PullRequest) {
    const image = parseImage(request.reference)
    if (image === undefined) return failed("image_not_found", `${request.reference} names no image`)
    for (let attempt = 1; ; attempt++) {
      const done = yield* Effect.result(images.pullNamed(request, options.pullStallMs))
      if (done._tag === "Success") return { _tag: "Pulled", image: done.success } satisfies Pull
      const { message, reason } = done.failure
      const lasting = lastingReason(message)
      // Without an engine nothing can be said of the image: whoever asked waits for the engine, and asks again.
      if (reason === "HostDependencyMissing" || (reason === "Unreachable" && attempt >= options.pullTries))
        return undefined
      if (lasting !== undefined || attempt >= options.pullTries)
        return failed(lasting ?? "image_pull_failed", message)
      yield* Effect.logDebug(`fetching the image of ${uid} failed; trying again`)
      yield* Effect.sleep(1_000 * 2 ** attempt)
    }
  })

  const stop = (uid: string) =>
    Effect.andThen(
      FiberMap.remove(fibers, uid),
      Effect.sync(() => void states.delete(uid))
    )

  const service: PullsService = {
    look: (uid) => states.get(uid)?.pull,
    start: Effect.fnUntraced(function* (ref, request) {
      const { orgId, uid } = ref
      if (states.has(uid)) return
      states.set(uid, { ref, pull: { _tag: "Queued" } })
      yield* FiberMap.run(
        fibers,
        uid,
        Effect.flatMap(Clock.currentTimeMillis, (since) => {
          states.set(uid, { ref, pull: { _tag: "Pulling", since } })
          return pull(uid, request)
        }).pipe(
          turns.take({ owner: orgId, first: false }),
          Effect.catchCause((cause) =>
            Effect.as(
              Effect.logError("a fault of the program: an image was not fetched", cause),
              failed("image_pull_failed", "The image could not be fetched")
            )
          ),
          Effect.flatMap((state) =>
            Effect.sync(() => {
              if (state === undefined) states.delete(uid)
              else states.set(uid, { ref, pull: state })
            })
          ),
          // Without a store the next look finds it.
          Effect.andThen(Effect.ignore(wakeReconciler(ref))),
          inBackground
        )
      )
    }),
    stop,
    sweep: Effect.gen(function* () {
      const refs = [...states.values()].map(({ ref }) => ref)
      const wanted = yield* wantingImage(refs)
      const idle = refs.filter(({ uid }) => !wanted.has(uid))
      yield* Effect.forEach(idle, ({ uid }) => stop(uid), { discard: true })
      return idle.length
    })
  }
  return service
})

export class Pulls extends Context.Service<Pulls, PullsService>()("svc/executions/Pulls") {
  static readonly layer = Layer.effect(Pulls, Effect.flatMap(Runs, makePulls))
}

const failed = (errorCode: "image_pull_failed" | "image_not_found", message: string): Pull => ({
  _tag: "Failed",
  errorCode,
  message
})

/** What the registry said that trying again does not change; engines pass it on as text only. */
const lastingReason = (message: string): "image_pull_failed" | "image_not_found" | undefined =>
  /manifest unknown|name unknown|not found|no such (image|manifest)|does not exist|no matching manifest/i.test(
    message
  )
    ? "image_not_found"
    : /nothing came for|requests do not go there|unauthorized|authentication required|denied|forbidden|invalid username/i.test(
          message
        )
      ? "image_pull_failed"
      : undefined
