/** What is kept of executions and for how long, what is removed by itself, and what is left alone; on a real engine. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { pieceWeight } from "#src/container-logs/log-store.ts"
import { prune, retireExecutions, sweep } from "#src/executions/tidy.ts"
import { Installation } from "#src/infra/containers/Installation.ts"
import { sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { beside } from "./beside.ts"
import {
  base,
  Containers,
  create,
  ended,
  entries,
  executionPlane,
  isRunning,
  makeProject,
  read,
  until,
  untilReason
} from "./world.ts"

const logBytes = 6_000
const patience = 300_000
const loop = { command: sh("while :; do busybox sleep 0.2; done"), env: { PATH: "/bin" } }

const tidily = <A, E, R>(self: Effect.Effect<A, E, R>) =>
  Effect.flatMap(Containers, ({ socket }) => Effect.provide(self, beside({ containerSocket: socket })))

const plane = executionPlane({ logBytes, graceMs: 500, cleanupTries: 2 }, ({ sandbox }) => ({
  SVC_SANDBOX_RUNTIME: sandbox.name
}))

layer(plane, { excludeTestServices: true, timeout: "3 minutes" })("executions", (it) => {
  it.effect(
    "have a log with a bound: its beginning is kept, then one line says that there was more",
    () =>
      Effect.gen(function* () {
        yield* makeProject
        const id = yield* create({
          command: sh(
            'i=0; while [ $i -lt 400 ]; do echo "line $i of what it prints"; i=$((i+1)); done; exit 4'
          )
        })
        const done = yield* ended(id)
        // That it printed too much is no fault of the command.
        assert.deepStrictEqual([done.status, done.exitCode], ["failed", 4])
        const all = yield* entries(id)
        const kept = all.slice(0, -1)
        assert.match(all.at(-1)?.text ?? "", /log is full/)
        assert.deepStrictEqual(
          all.filter(({ stream }) => stream === "system").map(({ id }) => id),
          [all.at(-1)?.id]
        )
        const text = kept.map(({ text }) => text).join("")
        const whole = Array.from({ length: 400 }, (_, i) => `line ${i} of what it prints\n`).join("")
        assert.isTrue(whole.startsWith(text) && text.length < whole.length)
        const weight = text.length + kept.length * pieceWeight
        assert.isAtMost(weight, logBytes)
        assert.isAbove(weight, logBytes - 200)
        // It is complete: who follows it is told that it has ended.
        const { url, apiKey } = yield* Plane
        const stream = yield* Effect.promise(async () =>
          (
            await fetch(`${url}${base}/${id}/logs?follow=true`, {
              headers: { authorization: `Bearer ${apiKey}` },
              signal: AbortSignal.timeout(120_000)
            })
          ).text()
        )
        assert.include(stream, "event: end")
      }),
    patience
  )

  it.effect(
    "go with their logs when they ended long enough ago, and not before",
    () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const [fresh] = (yield* call("GET", base)).body
        const old = yield* create({ command: sh("echo old") })
        yield* ended(old)
        yield* sql(
          `update execution set finished_at = now() - interval '29 days 23 hours' where uid = '${old}'`
        )
        assert.strictEqual(yield* tidily(retireExecutions), 0)
        yield* sql(
          `update execution set finished_at = now() - interval '30 days 1 minute' where uid = '${old}'`
        )
        // The control plane's own may be faster.
        assert.isAtMost(yield* tidily(retireExecutions), 1)
        yield* eventually("it is gone", read(old), ({ status }) => status === 404)
        const [left] = yield* sql(
          `select count(*)::int as count from execution_log where execution_uid = '${old}'`
        )
        assert.strictEqual(left?.["count"], 0)
        assert.isNotEmpty(yield* entries(fresh.id))
      }),
    patience
  )

  it.effect(
    "leave no container that none knows and those of others alone; what cannot be removed asks for attention",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const { podman, openImage } = yield* Containers
        const id = yield* create(loop)
        yield* isRunning(id)
        const { label } = yield* tidily(Installation)
        const put = (name: string, ...labels: ReadonlyArray<string>) =>
          podman("create", "--name", name, ...labels.flatMap((one) => ["--label", one]), openImage, "/bin/sh")
        const unknown = [
          `svc.execution=${crypto.randomUUID()}`,
          `svc.organization=${crypto.randomUUID()}`
        ] as const
        // Those of two strays cannot go while somebody uses them; the one between them goes all the same.
        for (const name of ["before", "later"]) podman("network", "create", name)
        podman("create", "--name", "guest", "--network", "before,later", openImage, "/bin/sh")
        for (const name of ["before", "stray", "later"]) put(name, label, ...unknown)
        put("foreign")
        put("elsewhere", "svc.installation=0123456789abcdef", ...unknown)
        // The control plane's own may be at it at this very moment, which does the same.
        assert.isAtMost(yield* tidily(sweep), 1)
        const names = podman("ps", "-a", "--format", "{{.Names}}").split("\n").sort()
        assert.deepStrictEqual(names, ["elsewhere", "foreign", "guest", `svc-${id}`])
        podman("rm", "foreign", "elsewhere", "guest")
        podman("network", "rm", "before", "later")

        // It is cancelled. Somebody's container in its network keeps that from going.
        const limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        const guest = ["--name", "guest", "--network", `svc-${id}`, openImage, "/bin/busybox", "sleep", "600"]
        podman("run", "-d", ...limits, ...guest)
        yield* call("POST", `${base}/${id}/cancel`)
        const stuck = yield* until(id, (body) => body.cleanupStatus === "attention_required", "stuck")
        // How it ended is told all the same.
        assert.strictEqual(stuck.status, "cancelled")
        assert.isNotNull(stuck.finishedAt)
        const told = yield* untilReason(id, "CleanupFailing")
        assert.strictEqual(told["status"], "false")
        assert.include(String(told["message"]), "network")
        podman("rm", "-f", "-t", "0", "guest")
        assert.strictEqual((yield* ended(id)).status, "cancelled")
        assert.notInclude(podman("network", "ls", "--format", "{{.Name}}"), id)
      }),
    patience
  )

  it.effect(
    "bring images that go when none asked for them in days; what is in use or not ours stays",
    () =>
      Effect.gen(function* () {
        const { dataDir, call } = yield* Plane
        const { podman, openImage, openRegistry, folder } = yield* Containers
        const records = path.join(dataDir, "images")
        const age = () => {
          const then = Date.now() / 1000 - 7 * 86_400 - 60
          for (const name of fs.readdirSync(records)) fs.utimesSync(path.join(records, name), then, then)
        }
        const has = (name: string) => podman("images", "-q", name) !== ""
        // One that was on the host before an execution asked for it.
        const foreign = `${openRegistry}/test/foreign:1`
        const context = path.join(folder, "foreign")
        fs.mkdirSync(context)
        fs.writeFileSync(path.join(context, "Dockerfile"), `FROM ${openImage}\nLABEL mine=yes\n`)
        podman("build", "-q", "-t", foreign, context)
        podman("push", "-q", foreign)
        yield* ended(yield* create({ image: foreign, command: sh("exit 0") }))

        const user = yield* create(loop)
        yield* isRunning(user)
        assert.strictEqual(yield* tidily(prune), 0, "asked for a moment ago")
        age()
        assert.strictEqual(yield* tidily(prune), 0, "a container is made of it")
        yield* call("POST", `${base}/${user}/cancel`)
        yield* ended(user)
        assert.strictEqual(yield* tidily(prune), 0, "found in use, it is old again only in days")
        podman("tag", openImage, "localhost/kept/box:1")
        age()
        assert.strictEqual(yield* tidily(prune), 1)
        assert.isFalse(has(openImage))
        assert.isTrue(has("localhost/kept/box:1"), "a name that somebody gave it keeps it")
        assert.isTrue(has(foreign))
        assert.deepStrictEqual(fs.readdirSync(records), [])

        // Nothing is missing afterwards; and what is nobody's else goes altogether.
        podman("rmi", foreign, "localhost/kept/box:1")
        assert.strictEqual((yield* ended(yield* create({ command: sh("exit 0") }))).status, "succeeded")
        age()
        assert.strictEqual(yield* tidily(prune), 1)
        assert.strictEqual(podman("images", "-a", "-q"), "")
      }),
    patience
  )

  it.effect(
    "hold containers only in the runtime that is made for it",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const { sandbox, kill, restart } = yield* Containers
        const calls = () => (fs.existsSync(sandbox.calls) ? fs.readFileSync(sandbox.calls, "utf8") : "")
        const offered = yield* call("GET", `${base}/availability`)
        assert.deepStrictEqual(offered.body.runtime, { nestedContainers: true })
        // Others have run before.
        assert.strictEqual(calls(), "")
        const nested = create({ command: sh("exit 0"), runtime: { nestedContainers: true } })
        // An engine that would run it in another runtime, without a word, is found out before anything runs.
        const refused = yield* ended(yield* nested)
        assert.deepStrictEqual(
          [refused.status, refused.errorCode, refused.startedAt],
          ["failed", "start_failed", null]
        )
        assert.include(refused.error, sandbox.name)
        yield* Effect.promise(async () => {
          await kill()
          await restart(sandbox.name)
        })
        const done = yield* ended(yield* nested)
        assert.deepStrictEqual(
          [done.status, done.runtime],
          ["succeeded", { nestedContainers: true }],
          done.error
        )
        assert.match(calls(), /create --bundle/)
      }),
    patience
  )
})
