/** The engine over one resource, run by run, with the store in memory and the real outside. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Json } from "#schemas/kind.ts"
import { poolOf } from "#schemas/placement.ts"
import { defaults } from "#src/engine/options.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { reconcile } from "#src/engine/reconcile.ts"
import { MemoryStore } from "#test/engine/memory-work-store.ts"
import { eventually } from "./wait.ts"

const asJson = Schema.decodeUnknownSync(Schema.Json)

/** `resource` as people asked for it; its kind is registered in the context. */
export const memoryEngine = Effect.fnUntraced(function* (resource: Resource) {
  const { orgId, uid, kind, projectId, name } = resource
  const registration = (yield* Registry).registrations.get(kind)
  if (registration === undefined) return yield* Effect.die(`${kind} is not registered`)
  const store = new MemoryStore(() => Date.now())
  store.create({
    orgId,
    uid,
    kind,
    projectId,
    name,
    parentUid: null,
    spec: asJson(resource.spec),
    secrets: []
  })
  const pool = poolOf(registration.kind, asJson(resource.spec))
  const pause = { scope: "resource", target: uid } as const

  const row = () => {
    const found = store.resources.get(uid)
    if (found === undefined) throw new Error("the resource is gone")
    return found
  }
  const condition = (type: string) => row().conditions.find((one) => one.type === type)
  const run = Effect.gen(function* () {
    const claimed = Option.getOrThrow(store.claimOne(orgId, uid, 600_000, pool))
    const { recorded } = yield* reconcile(registration, claimed, defaults)
    store.record([recorded])
    return recorded
  })
  /** Run after run, until one leaves the resource as it should be. */
  const runUntil = (what: string, reached: () => boolean) =>
    Effect.asVoid(
      eventually(
        what,
        Effect.map(run, () => row().conditions),
        reached
      )
    )

  return {
    store,
    run,
    runUntil,
    row,
    condition,
    work: () => store.work.get(uid),
    events: (reason: string) => store.events.filter((event) => event.reason === reason),
    ready: runUntil("it is ready", () => row().phase === "ready" && condition("Ready")?.status === "true"),
    update: (spec: unknown) => Effect.sync(() => store.update(uid, asJson(spec) satisfies Json)),
    pause: Effect.sync(() => store.pause(orgId, pause, null)),
    resume: Effect.sync(() => store.resume(orgId, pause)),
    delete: Effect.sync(() => store.delete(uid)),
    retry: Effect.sync(() => store.retry(uid))
  }
})
