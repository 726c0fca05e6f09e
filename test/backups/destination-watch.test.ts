/** Destinations are tried out by the engine itself, now and then: nobody asks for it here. */
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { DestinationOptions } from "#src/backups/destinations/options.ts"
import { type Answer, Plane, testPlane } from "#test/setup/control-plane.ts"
import { type ObjectStore, objectStore, trust } from "#test/setup/s3.ts"
import { eventually } from "#test/setup/wait.ts"

class Store extends Context.Service<Store, ObjectStore>()("test/ObjectStore") {}

const world = Layer.unwrap(
  Effect.map(objectStore, (store) => {
    trust(store.caPem)
    return Layer.merge(
      testPlane().pipe(
        Layer.provide(
          Layer.succeed(DestinationOptions, {
            lookMs: 400,
            goodMs: 300,
            badMs: 300,
            againMs: 400,
            leftoversAfterMs: 86_400_000
          })
        )
      ),
      Layer.succeed(Store, store)
    )
  })
)
const base = "/v1/orgs/main/backup-destinations"

layer(world, { excludeTestServices: true, timeout: "5 minutes" })("a destination in use", (it) => {
  it.effect("is tested again and again; that it fails and that it works again is told", () =>
    Effect.gen(function* () {
      const far = yield* Store
      const { call } = yield* Plane
      const { endpoint, bucket, credentials } = far
      const made = yield* call("POST", base, { body: { name: "watched", endpoint, bucket, credentials } })
      assert.strictEqual(made.status, 201, made.text)
      const at = `/v1/orgs/main/resources/${made.body.id}`
      const condition = (answer: Answer) =>
        answer.body.conditions?.find(({ type }: { type: string }) => type === "Ready")
      const becomes = (status: string) =>
        eventually(`ready: ${status}`, call("GET", at), (answer) => condition(answer)?.status === status)
      const shown = Effect.map(call("GET", `${base}/${made.body.id}`), ({ body }) => body)
      yield* becomes("true")
      far.trouble = () => ({ status: 403, code: "InvalidAccessKeyId" })
      const failed = yield* becomes("false")
      assert.strictEqual(condition(failed).reason, "AccessFailed")
      assert.match(condition(failed).message, /does not accept the credentials.*\(credentials\)/)
      assert.deepStrictEqual([(yield* shown).status, (yield* shown).fault.code], ["failed", "credentials"])
      far.trouble = () => undefined
      yield* becomes("true")
      const view = yield* shown
      assert.deepStrictEqual([view.status, view.fault], ["ready", null])
      assert.isAbove(Date.parse(view.lastTestedAt), Date.parse(made.body.lastTestedAt))
      const reasons = (yield* call("GET", `${at}/events`)).text
      assert.match(reasons, /AccessFailed/)
    })
  )
})
