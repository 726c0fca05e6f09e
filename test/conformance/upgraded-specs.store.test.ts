/** A kind whose stored specifications changed their shape: every reader sees the new one, and nothing has to be done. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Json } from "#schemas/kind.ts"
import { Queue } from "#schemas/queue.ts"
import { fromStored } from "#schemas/stored-spec.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

/** As if a former release had called `retentionSeconds` by another name. */
const upgrade = (stored: Json): Json => {
  if (typeof stored !== "object" || stored === null || !("keepSeconds" in stored)) return stored
  const { keepSeconds, ...rest } = stored as { readonly [key: string]: Json }
  return { ...rest, retentionSeconds: keepSeconds! }
}
const withUpgrade = Effect.acquireRelease(
  Effect.sync(() => void Object.assign(Queue, { upgrade })),
  () => Effect.sync(() => void Reflect.deleteProperty(Queue, "upgrade"))
)

const base = "/v1/orgs/main/projects/shop/queues"

layer(testPlane(), { excludeTestServices: true })("a stored specification of an earlier shape", (it) => {
  it.effect(
    "is read in the present one by the API, the manifest and the engine, and stored so when it changes",
    () =>
      Effect.gen(function* () {
        yield* withUpgrade
        const { call, sql } = yield* Plane
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
        const made = yield* call("POST", base, { body: { name: "jobs", retentionSeconds: 600 } })
        const { id } = made.body
        const get = call("GET", `${base}/${id}`)
        const isReady = Effect.repeat(get, { until: ({ body }) => body.status === "ready" }).pipe(
          Effect.timeout("2 minutes")
        )
        yield* isReady
        yield* sql(
          `update resource set spec = spec - 'retentionSeconds' || '{"keepSeconds": 600}' where uid = '${id}'`
        )

        assert.strictEqual((yield* get).body.retentionSeconds, 600)
        const manifest = yield* call("GET", "/v1/orgs/main/manifest")
        assert.strictEqual(manifest.body.projects[0].queues[0].retentionSeconds, 600)
        const plan = yield* call("POST", "/v1/orgs/main/manifest/plan", { body: manifest.body })
        assert.include(plan.body.summary, { create: 0, update: 0, replace: 0, delete: 0 })

        // The engine would call what it cannot read failed.
        yield* sql(`update work set due_at = now(), rank = now() where uid = '${id}'`)
        yield* call("POST", `/v1/orgs/main/resources/${id}/retry`, {})
        yield* isReady

        const changed = yield* call("PATCH", `${base}/${id}`, { body: { paused: true } })
        assert.deepStrictEqual([changed.status, changed.body.retentionSeconds], [200, 600])
        const [row] = yield* sql(
          `select spec->'retentionSeconds' as kept, spec ? 'keepSeconds' as old from resource where uid = '${id}'`
        )
        assert.deepStrictEqual(row, { kept: 600, old: false })
      })
  )

  it.effect("is left as it is by an upgrade that fails, and an upgrade leaves the present shape alone", () =>
    Effect.gen(function* () {
      yield* withUpgrade
      const present = { retentionSeconds: 60 }
      assert.deepStrictEqual(fromStored("Queue", fromStored("Queue", { keepSeconds: 60 })), present)
      Object.assign(Queue, {
        upgrade: () => {
          throw new Error("not for this")
        }
      })
      assert.deepStrictEqual(fromStored("Queue", "odd"), "odd")
    })
  )
})
