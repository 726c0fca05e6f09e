/**
 * Building the images of deployments, in the background of the process whose reconcile asked for it; reconciles look how
 * far it is. What is printed goes into the deployment's log at the byte where the last piece ended: of two who build the
 * same, the one that began first finds the log longer than it left it, and stops. A process that ends takes its builds
 * along; the next one begins them anew.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as Layer from "effect/Layer"
import { BuildContainers } from "#src/builds/BuildContainers.ts"
import { Builder, type BuildRequest } from "#src/builds/Builder.ts"
import { type BuildFailed, BuildLost } from "#src/builds/build-error.ts"
import type { BuildPrinter } from "#src/builds/keep-printed.ts"
import { keyOf } from "#src/builds/upload-files.ts"
import { inBackground } from "#src/engine/in-background.ts"
import { ContainerEngine, type PulledImage } from "#src/infra/containers/ContainerEngine.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { type DeploymentRef, Deployments } from "./Deployments.ts"

export type Build =
  /** Or it waits for its turn. */
  | { readonly _tag: "Building" }
  | { readonly _tag: "Built"; readonly image: PulledImage }
  | { readonly _tag: "Failed"; readonly errorCode: BuildFailed["errorCode"]; readonly message: string }

export interface PendingBuild extends Pick<BuildRequest, "orgId" | "packagesOf" | "uid" | "variables"> {
  /** What is built, brought to this host first where it is elsewhere. */
  readonly source: Effect.Effect<Pick<BuildRequest, "digest" | "plan">, BuildFailed>
}

/** How often a build is begun anew that broke off, as when the engine ended. */
const mostBreaks = 10
const brokenOff = {
  _tag: "Failed",
  errorCode: "build_unavailable",
  message: "The build broke off again and again"
} as const

export class DeploymentBuilds extends Context.Service<
  DeploymentBuilds,
  {
    /** Undefined: nobody builds it in this process. */
    readonly look: (uid: string) => Build | undefined
    readonly start: (request: PendingBuild) => Effect.Effect<void>
    /** Ends it, if it is built in this process, and forgets what it came to. */
    readonly stop: (uid: string) => Effect.Effect<void>
    /** The same, and removes the containers of a process that was killed; what cannot be removed now is swept later. */
    readonly discard: (uid: string) => Effect.Effect<void>
    /** Source that is built in this process or waits for its turn, as `organization/digest`. */
    readonly sources: () => ReadonlySet<string>
    /**
     * Ends what is of no use any more in this process, and removes containers of builds that nobody wants. Answers how many
     * of both.
     */
    readonly sweep: Effect.Effect<number, StoreUnavailable>
  }
>()("svc/deployments/DeploymentBuilds") {
  static readonly layer = Layer.effect(
    DeploymentBuilds,
    Effect.gen(function* () {
      const deployments = yield* Deployments
      const builder = yield* Builder
      const engine = yield* ContainerEngine
      const containers = yield* BuildContainers
      const states = new Map<string, { readonly ref: DeploymentRef; readonly build: Build }>()
      const sources = new Map<string, string>()
      /** How often a build broke off in a row, by its deployment. */
      const breaks = new Map<string, number>()
      const fibers = yield* FiberMap.make<string>()

      const printerOf = (ref: DeploymentRef): BuildPrinter => {
        let position: number | undefined
        const print: BuildPrinter["print"] = Effect.fnUntraced(function* (pieces) {
          const end = yield* Effect.catch(deployments.print(ref, position, pieces), () => new BuildLost())
          if (end === undefined) return yield* new BuildLost()
          position = end
        })
        const say = (line: string) =>
          Effect.flatMap(
            Effect.catch(
              deployments.print(ref, position, [{ stream: "system", content: Buffer.from(`${line}\n`) }]),
              () => new BuildLost()
            ),
            (end) => {
              if (end === undefined) return Effect.fail(new BuildLost())
              position = end
              return Effect.void
            }
          )
        return { print, say }
      }

      const build = Effect.fnUntraced(function* ({ source, ...known }: PendingBuild) {
        const { orgId, uid } = known
        const printer = printerOf({ orgId, uid })
        const request = { ...known, ...(yield* source) }
        sources.set(uid, keyOf(request))
        const { steps } = request.plan
        yield* printer.say(
          steps.length === 0 ? "No steps are needed" : `Steps: ${steps.map(({ name }) => name).join(", ")}`
        )
        const id = yield* builder.build(request, printer)
        return {
          _tag: "Built",
          image: { id, digest: `sha256:${id.replace(/^sha256:/, "")}` }
        } satisfies Build
      })

      /** Undefined: whoever asked asks again. */
      const outcome = (request: PendingBuild): Effect.Effect<Build | undefined> =>
        build(request).pipe(
          Effect.ensuring(Effect.sync(() => sources.delete(request.uid))),
          Effect.catchTags({
            BuildFailed: ({ errorCode, message }) =>
              Effect.succeed<Build>({ _tag: "Failed", errorCode, message }),
            BuildLost: () => Effect.succeed(undefined),
            ContainerError: ({ reason, message }) =>
              Effect.succeed<Build | undefined>(
                reason === "Failed" ? { _tag: "Failed", errorCode: "build_unavailable", message } : undefined
              )
          }),
          Effect.catchCause((cause) =>
            Effect.as(Effect.logError("a fault of the program: a build ended", cause), {
              _tag: "Failed" as const,
              errorCode: "build_unavailable" as const,
              message: "The build could not be carried out"
            })
          )
        )

      const stop = Effect.fnUntraced(function* (uid: string) {
        yield* FiberMap.remove(fibers, uid)
        states.delete(uid)
        breaks.delete(uid)
      })

      return DeploymentBuilds.of({
        look: (uid) => states.get(uid)?.build,
        sources: () => new Set(sources.values()),
        start: Effect.fnUntraced(function* (request) {
          const { orgId, uid } = request
          if (states.has(uid)) return
          const ref = { orgId, uid }
          states.set(uid, { ref, build: { _tag: "Building" } })
          yield* FiberMap.run(
            fibers,
            uid,
            outcome(request).pipe(
              Effect.flatMap((state) =>
                Effect.sync(() => {
                  const count = (breaks.get(uid) ?? 0) + 1
                  if (state !== undefined) states.set(uid, { ref, build: state })
                  else if (count > mostBreaks) states.set(uid, { ref, build: brokenOff })
                  else {
                    breaks.set(uid, count)
                    states.delete(uid)
                  }
                })
              ),
              // Without a store the next look finds it.
              Effect.andThen(Effect.ignore(deployments.wakeReconciler(ref))),
              inBackground
            )
          )
        }),
        stop,
        discard: (uid) => Effect.andThen(stop(uid), Effect.ignore(containers.clear(uid))),
        sweep: Effect.gen(function* () {
          const refs = [...states.values()].map(({ ref }) => ref)
          const left =
            (yield* engine.state)._tag === "Ready"
              ? yield* Effect.orElseSucceed(containers.remains, () => [])
              : []
          const wanted = yield* deployments.building([...refs, ...left])
          const idle = refs.filter(({ uid }) => !wanted.has(uid))
          yield* Effect.forEach(idle, ({ uid }) => stop(uid), { discard: true })
          const stray = new Set(left.flatMap(({ uid }) => (wanted.has(uid) ? [] : [uid])))
          yield* Effect.forEach(stray, (uid) => Effect.ignore(containers.clear(uid)), { discard: true })
          return idle.length + stray.size
        })
      })
    })
  )
}
