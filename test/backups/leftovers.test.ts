/** What a killed process left of its uploads is given up by the next test of the destination, and nothing else is. */
import { spawn } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { DestinationOptions } from "#src/backups/destinations/options.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { type ObjectStore, objectStore, trust } from "#test/setup/s3.ts"

class Store extends Context.Service<Store, ObjectStore>()("test/ObjectStore") {}

// The store says when an upload was begun in whole seconds, rounded up.
const leftoversAfterMs = -5_000
const options = { lookMs: 3_600_000, goodMs: 3_600_000, badMs: 1_000, againMs: 1_000, leftoversAfterMs }
const world = Layer.unwrap(
  Effect.map(objectStore, (store) => {
    trust(store.caPem)
    return Layer.merge(
      testPlane().pipe(Layer.provide(Layer.succeed(DestinationOptions, options))),
      Layer.succeed(Store, store)
    )
  })
)

layer(world, { excludeTestServices: true, timeout: "5 minutes" })("uploads of a killed process", (it) => {
  it.effect("are given up where they are ours", () =>
    Effect.gen(function* () {
      const far = yield* Store
      const { call, dataDir } = yield* Plane
      const { endpoint, bucket, credentials } = far
      const made = yield* call("POST", "/v1/orgs/main/backup-destinations", {
        body: { name: "left", endpoint, bucket, prefix: "mine", credentials }
      })
      assert.strictEqual(made.status, 201, made.text)
      const id = crypto.randomUUID()
      const keys = [
        `mine/${id}/base/${id}/00000`,
        `mine/${id}/wal/000000010000000000000001`,
        // Somebody else's: another prefix, another name, the bucket's root.
        `mine2/${id}/wal/000000010000000000000001`,
        "mine/holidays.mp4",
        `${id}/wal/000000010000000000000001`
      ]
      const ca = path.join(dataDir, "store.pem")
      fs.writeFileSync(ca, far.caPem)
      const script = path.join(import.meta.dirname, "upload-process.ts")
      yield* Effect.promise(
        () =>
          new Promise<void>((resolve, reject) => {
            const child = spawn(
              process.execPath,
              [script, endpoint, bucket, credentials.accessKeyId, credentials.secretAccessKey, ...keys],
              { env: { ...process.env, NODE_EXTRA_CA_CERTS: ca }, stdio: ["ignore", "pipe", "inherit"] }
            )
            child.stdout.once("data", () => child.kill("SIGKILL"))
            child.once("exit", (_, signal) =>
              signal === "SIGKILL" ? resolve() : reject(new Error("the process ended by itself"))
            )
          })
      )
      assert.strictEqual(yield* Effect.promise(() => far.openUploads()), 5)
      const test = call("POST", `/v1/orgs/main/backup-destinations/${made.body.id}/test`)
      // A store that cannot list uploads is used as it is.
      far.trouble = ({ method, url }) =>
        method === "GET" && url.includes("uploads") ? { status: 501, code: "NotImplemented" } : undefined
      assert.strictEqual((yield* test).status, 200)
      assert.strictEqual(yield* Effect.promise(() => far.openUploads()), 5)
      far.trouble = () => undefined
      assert.strictEqual((yield* test).status, 200)
      assert.strictEqual(yield* Effect.promise(() => far.openUploads()), 3)
    })
  )
})
