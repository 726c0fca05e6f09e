/** The example app and the command line, as a reader of the documentation uses them. */
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "#test/cli/control-plane.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { freePort } from "#test/setup/postgres.ts"
import { until } from "#test/setup/wait.ts"

const path = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url))

const worker = (secret: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const port = await freePort()
      const child = spawn(process.execPath, [path("examples/worker/worker.ts")], {
        env: { ...process.env, SIGNING_SECRET: secret, PORT: String(port) },
        stdio: ["ignore", "pipe", "pipe"]
      })
      const app = { origin: `http://127.0.0.1:${port}`, log: "", child }
      for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (app.log += chunk))
      await until("it listens", () => app.log.includes("Listening"))
      return app
    }),
    ({ child }) => Effect.sync(() => child.kill("SIGKILL"))
  )

layer(signedIn(), { excludeTestServices: true, timeout: "3 minutes" })("the example worker", (it) => {
  it.effect(
    "does what is published from the command line, and refuses who cannot sign",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const { svc } = yield* Operator
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
        const environment = "/v1/orgs/main/projects/shop/environments/production"
        const secret = (yield* call("POST", `${environment}/signing-secret/rotate`)).body.signingSecret
        const app = yield* worker(secret)
        yield* call("PATCH", environment, { body: { origin: app.origin } })

        const dead = yield* svc(["queues", "create", "shop", "dead"])
        assert.strictEqual(dead.code, 0, dead.stderr)
        const made = yield* svc([
          "queues",
          "create",
          "shop",
          "jobs",
          "--path",
          "/jobs",
          "--dead-letter-queue",
          "dead"
        ])
        assert.strictEqual(made.code, 0, made.stderr)
        const published = yield* svc(["queues", "publish", "shop", "jobs", '{"greet":"world"}'])
        assert.match(published.stdout, /^[0-9a-f-]{36}\n$/, published.stderr)
        yield* Effect.promise(() => until("it was greeted", () => app.log.includes("Hello, world")))
        // A message that makes no sense goes to the dead letter queue at once.
        yield* svc(["queues", "publish", "shop", "jobs", '"nonsense"'])
        const stats = yield* Effect.promise(() =>
          until("it was given up", async () => {
            const told = await Effect.runPromise(svc(["queues", "stats", "shop", "jobs", "--json"]))
            const found = JSON.parse(told.stdout)
            return found.inDeadLetterQueue === 1 && found.backlog === 0 && found
          })
        )
        assert.strictEqual(stats.failed, 0)
        const shown = yield* svc(["queues", "get", "shop", "jobs"])
        assert.include(shown.stdout, "/jobs")
        const paused = yield* svc(["queues", "pause", "shop", "jobs"])
        assert.strictEqual(paused.code, 0, paused.stderr)
        const listed = yield* svc(["queues", "ls", "shop"])
        assert.match(listed.stdout, /jobs +paused +\/jobs +dead/)
        const purged = yield* svc(["queues", "purge", "shop", "dead", "--yes", "--json"])
        assert.deepStrictEqual(JSON.parse(purged.stdout), { purged: 1 })
        const none = yield* svc(["queues", "update", "shop", "jobs"])
        assert.strictEqual(none.code, 2)

        const forged = yield* Effect.promise(() =>
          fetch(`${app.origin}/jobs`, {
            method: "POST",
            headers: { "svc-signature": `t=${Math.floor(Date.now() / 1000)},v1=${"0".repeat(64)}` },
            body: '{"messages":[{"id":"1","body":{"greet":"thief"}}]}'
          })
        )
        assert.strictEqual(forged.status, 401)
        assert.notInclude(app.log, "thief")
      }),
    400_000
  )
})
