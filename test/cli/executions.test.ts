/** `svc executions`, as people type it, with real containers. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Containers } from "#test/executions/world.ts"
import { registryPassword, registryUser, sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { Operator, signedIn } from "./control-plane.ts"

const world = Layer.unwrap(
  Effect.map(Containers, ({ socket, registry }) =>
    signedIn({ containerSocket: socket }, { SVC_REGISTRIES: registry })
  )
).pipe(Layer.provideMerge(Containers.layer))

/** Each of these starts some programs. */
const patience = 600_000
const size = ["--cpus", "0.5", "--memory", "64"]

layer(world, { excludeTestServices: true, timeout: "2 minutes" })("svc executions", (it) => {
  it.effect(
    "runs a command, shows what it prints where it printed it, and exits as it went",
    () =>
      Effect.gen(function* () {
        const { svc, cwd } = yield* Operator
        const { call } = yield* Plane
        const { image, openImage, registry } = yield* Containers
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
        fs.writeFileSync(path.join(cwd, ".env.job"), "GREETING='hello there'\n")
        const run = ["executions", "run", "shop"]
        const good = yield* svc(
          [
            ...[...run, openImage, ...size, "--env-file", ".env.job", "--env", "SECRET", "--"],
            ...sh('echo "$GREETING $SECRET"; echo bad >&2')
          ],
          { env: { SECRET: "world" } }
        )
        assert.deepStrictEqual([good.code, good.stdout], [0, "hello there world\n"], good.stderr)
        assert.include(good.stderr, "bad\n")
        const bad = yield* svc([...run, openImage, ...size, "--json", "--", ...sh("echo x; exit 3")])
        assert.strictEqual(bad.code, 1)
        const { exitCode, status } = JSON.parse(bad.stdout)
        assert.deepStrictEqual([status, exitCode], ["failed", 3])
        const login = ["--registry", registry, "--username", registryUser, "--password-stdin"]
        const hidden = yield* svc([...run, image, ...size, ...login, "--", ...sh("echo private")], {
          stdin: `${registryPassword}\n`
        })
        assert.deepStrictEqual([hidden.code, hidden.stdout], [0, "private\n"], hidden.stderr)
      }),
    patience
  )

  it.effect(
    "starts one without waiting, lists and shows it, follows and cancels it",
    () =>
      Effect.gen(function* () {
        const { svc, start } = yield* Operator
        const { openImage } = yield* Containers
        const script = "echo begun; while :; do /bin/busybox sleep 0.2; done"
        const run = ["executions", "run", "shop", openImage, ...size]
        const made = yield* svc([...run, "--no-wait", "--", ...sh(script)])
        assert.strictEqual(made.code, 0, made.stderr)
        const id = made.stdout.trim()
        const following = start(["executions", "logs", "shop", id, "-f"])
        yield* Effect.promise(() => following.says("begun"))
        const cancelled = yield* svc(["executions", "cancel", "shop", id, "--yes"])
        assert.strictEqual(cancelled.code, 0, cancelled.stderr)
        assert.include(cancelled.stderr, "cancelled")
        const followed = yield* Effect.promise(() => following.ended)
        assert.deepStrictEqual([followed.code, followed.stdout], [0, "begun\n"], followed.stderr)
        const [ls, get, logs, offered, again, missing, usage] = yield* Effect.all(
          [
            svc(["executions", "ls", "shop", "--json"]),
            svc(["executions", "get", "shop", id]),
            svc(["executions", "logs", "shop", id]),
            svc(["executions", "availability", "shop"]),
            svc(["executions", "cancel", "shop", id, "--yes"]),
            svc(["executions", "get", "shop", "00000000-0000-7000-8000-000000000000"]),
            svc([...run, "--env", "A=b", "--", "/bin/sh"])
          ],
          { concurrency: 2 }
        )
        assert.strictEqual(JSON.parse(ls.stdout)[0].id, id)
        assert.match(get.stdout, /Status\s+cancelled/)
        assert.strictEqual(logs.stdout, "begun\n")
        assert.match(offered.stdout, /Ready\s+yes/)
        assert.deepStrictEqual([again.code, missing.code, usage.code], [6, 5, 2])
      }),
    patience
  )
})
