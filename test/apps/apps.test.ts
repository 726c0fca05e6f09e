/** Real containers behind a real edge: how an app comes to answer, is replaced, and goes back. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Ref from "effect/Ref"
import { campaign } from "#test/campaigns/campaign.ts"
import { Containers } from "#test/executions/world.ts"
import { sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import {
  answerOf,
  appPlane,
  containersOf,
  deploy,
  makeShop,
  operator,
  over,
  readApp,
  readDeployment,
  readInstances,
  ready,
  server
} from "./world.ts"

const patience = 300_000

layer(appPlane(), { excludeTestServices: true, timeout: "3 minutes" })("apps", (it) => {
  it.effect(
    "are deployed, replaced, rolled back and promoted by commands without a lost request; nothing is fetched again",
    () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const { openImage } = yield* Containers
        const svc = yield* operator
        const ok = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
          const done = yield* svc(args)
          assert.strictEqual(done.code, 0, `${args.join(" ")}: ${done.stderr}`)
          return done
        })
        const { path, host } = yield* makeShop("rolls")
        const made = yield* ok("deploy", "rolls", "--image", openImage, "-m", "First", "--", ...server("one"))
        // What happens is told meanwhile, and then where it answers.
        assert.match(made.stderr, /Fetching/)
        assert.include(made.stderr, `https://${host}`)
        const first = /^Deployment (\S+)$/m.exec(made.stderr)?.[1] ?? ""
        const done = yield* readDeployment(path, first)
        assert.isTrue(done.active)
        assert.match(done.imageDigest, /^sha256:[0-9a-f]{64}$/)
        const begun = yield* eventually("it is ready", readApp(path), ({ status }) => status === "ready")
        assert.deepStrictEqual([begun.deploymentId, begun.power], [first, "awake"])
        const [only, ...others] = yield* readInstances(path)
        assert.deepStrictEqual([only.state, only.deploymentId, others], ["healthy", first, []])
        const log = yield* call("GET", `${path}/deployments/${first}/logs`)
        assert.lengthOf(log.body.items, 3, log.text)
        const word = log.body.items[1].text.trim().toUpperCase()
        const found = yield* call(
          "GET",
          `${path}/deployments/${first}/logs?search=${encodeURIComponent(word)}`
        )
        assert.deepStrictEqual(found.body.items, [log.body.items[1]])
        const answers = yield* Ref.make<ReadonlyArray<string>>([])
        const asking = yield* Effect.forkScoped(
          Effect.forever(
            Effect.flatMap(answerOf(host), (text) => Ref.update(answers, (all) => [...all, text]))
          )
        )
        const answered = (text: string) =>
          eventually(`it answers ${text}`, Ref.get(answers), (all) => all.at(-1) === `200 ${text}`)
        const again = yield* ok("deploy", "rolls", "--image", openImage, "--json", "--", ...server("two"))
        const { id: second, state } = JSON.parse(again.stdout)
        assert.strictEqual(state, "ready")
        yield* answered("two")
        assert.include((yield* ok("rollback", "rolls")).stderr, `${first} ready, answers`)
        yield* answered("one")
        yield* eventually("it is told", readApp(path), ({ deploymentId }) => deploymentId === first)
        const none = yield* svc(["rollback", "rolls"])
        assert.notStrictEqual(none.code, 0)
        assert.match(none.stderr, /before/)
        // Without a terminal nothing that matters is done without being sure.
        assert.strictEqual((yield* svc(["promote", "rolls", second])).code, 2)
        assert.include((yield* ok("promote", "rolls", second, "--yes")).stderr, `${second} ready, answers`)
        yield* answered("two")
        // The one before is ended and removed: its last words are kept.
        yield* eventually("one instance is left", readInstances(path), (all) =>
          all.every(({ state }, index) => (index === 0 ? state === "healthy" : state === "ended"))
        )
        yield* Fiber.interrupt(asking)
        const all = yield* Ref.get(answers)
        assert.deepStrictEqual([...new Set(all)].sort(), ["200 one", "200 two"])
        assert.isAbove(all.length, 20)
        const app = yield* readApp(path)
        yield* eventually(
          "one container is left",
          containersOf(`svc.app=${app.id}`),
          (names) => names.length === 1
        )
        const fetched = yield* sql(
          `select count(*)::int as n from deployment_log where convert_from(content, 'UTF8') like 'Fetching%'
           and deployment_uid in ('${first}', '${second}')`
        )
        assert.deepStrictEqual(fetched, [{ n: 2 }])
        const instances = yield* readInstances(path)
        const shown = yield* ok("ps", "rolls")
        assert.match(shown.stdout, new RegExp(`${instances[0]?.id} +healthy +${second}`))
        assert.match(shown.stdout, /Another version took its place/)
        yield* eventually(
          "its log is kept",
          ok("logs", "rolls"),
          ({ stdout }) => stdout === "serving two on 8080\n"
        )
        const last = yield* ok("logs", "rolls", "--instance", instances.at(-1)?.id)
        assert.include(last.stdout, "told to end")
        const some = yield* ok("logs", "rolls", "--instance", instances.at(-1)?.id, "--search", "TOLD TO")
        assert.strictEqual(some.stdout, "told to end\n")
        assert.strictEqual((yield* ok("logs", "rolls", "--search", "no such")).stdout, "")
        assert.strictEqual((yield* svc(["logs", "rolls", "--search", "x".repeat(201)])).code, 2)
        assert.strictEqual((yield* svc(["logs", "rolls", "--instance", first])).code, 5)
      }),
    patience
  )

  it.effect(
    "go on as they are when a new version does not get healthy, which is told once with its last words",
    () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const { path, host } = yield* makeShop("steady")
        yield* ready(path, yield* deploy(path, server("good")))
        const hook = yield* call("POST", "/v1/orgs/main/webhooks", {
          body: { url: "https://hooks.example.test/", events: ["deploy.failed"] }
        })
        assert.strictEqual(hook.status, 201, hook.text)
        const bad = yield* deploy(path, sh("echo cannot find the config; exit 3"))
        const failed = yield* over(path, bad)
        assert.deepStrictEqual(
          [failed.state, failed.errorCode, failed.active],
          ["failed", "never_healthy", false]
        )
        assert.strictEqual(yield* answerOf(host), "200 good")
        const log = yield* call("GET", `${path}/deployments/${bad}/logs`)
        assert.include(log.text, "cannot find the config")
        const events = yield* sql(
          `select data->>'deploymentId' as id, data->>'log' as log, data->>'environment' as environment
           from webhook_event where type = 'deploy.failed'`
        )
        assert.deepStrictEqual(events, [
          { id: bad, log: "cannot find the config\n", environment: "production" }
        ])
        const app = yield* eventually("it is ready", readApp(path), ({ status }) => status === "ready")
        assert.match(app.lastFailure, /ended 3 times/)
        // An image that is not there.
        const { openRegistry } = yield* Containers
        const absent = yield* deploy(path, server("x"), { image: `${openRegistry}/test/none:1` })
        const unknown = yield* over(path, absent)
        assert.deepStrictEqual([unknown.state, unknown.errorCode], ["failed", "image_not_found"])
        assert.strictEqual(yield* answerOf(host), "200 good")
      }),
    patience
  )

  it.effect(
    "take the newest of several versions that come at once; others are superseded, and a cancelled one never serves",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const { path, host } = yield* makeShop("pushes")
        const ids = yield* Effect.forEach(["a", "b", "c"], (text) => deploy(path, server(text)))
        const states = yield* Effect.forEach(ids, (id) => Effect.map(over(path, id), ({ state }) => state))
        assert.deepStrictEqual(states, ["superseded", "superseded", "ready"])
        assert.strictEqual(yield* answerOf(host), "200 c")
        // Never healthy: it is still starting when it is cancelled.
        const hung = yield* deploy(path, sh("while :; do busybox sleep 1; done"))
        yield* eventually("it starts", readDeployment(path, hung), ({ state }) => state === "starting")
        const cancelled = yield* call("POST", `${path}/deployments/${hung}/cancel`)
        assert.strictEqual(cancelled.status, 202, cancelled.text)
        assert.strictEqual((yield* over(path, hung)).state, "cancelled")
        const app = yield* eventually(
          "the app goes back",
          readApp(path),
          ({ chosenDeploymentId }) => chosenDeploymentId === ids[2]
        )
        const again = yield* call("POST", `${path}/deployments/${hung}/cancel`)
        assert.deepStrictEqual([again.status, again.body.code], [409, "deployment_ended"])
        assert.strictEqual(yield* answerOf(host), "200 c")
        yield* eventually(
          "one container is left",
          containersOf(`svc.app=${app.id}`),
          (names) => names.length === 1
        )
      }),
    patience
  )

  it.effect(
    "are followed by another instance when one ends by itself",
    () =>
      Effect.gen(function* () {
        const { podman } = yield* Containers
        const { path, host } = yield* makeShop("crashes")
        yield* ready(path, yield* deploy(path, server("up")))
        const app = yield* readApp(path)
        const [name = ""] = yield* containersOf(`svc.app=${app.id}`)
        podman("kill", "-s", "KILL", name)
        const [, before] = yield* eventually(
          "another one is healthy",
          readInstances(path),
          (all) => all.length > 1 && all[0].state === "healthy"
        )
        assert.deepStrictEqual([before.state, before.exitCode], ["ended", 137])
        yield* eventually("it answers", answerOf(host), (text) => text === "200 up")
      }),
    patience
  )

  campaign(
    it.effect,
    "app-programs",
    "apps have programs run in an instance, which are bound as it is and end with whoever asked for them",
    { rounds: 0, roundMs: patience },
    () =>
      Effect.gen(function* () {
        const { url, apiKey, call, sql } = yield* Plane
        const svc = yield* operator
        const { path } = yield* makeShop("execs")
        yield* svc(["env", "set", "execs", "SHADE"], { stdin: "teal" })
        yield* ready(path, yield* deploy(path, server("execs")))
        const exec = (...script: ReadonlyArray<string>) =>
          svc(["exec", "execs", "--", ...sh(script.join("\n"))])

        const bound = yield* exec(
          'echo "port $PORT as $(busybox id -u)"',
          "busybox grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status",
          "echo wrong >&2",
          "exit 7"
        )
        assert.strictEqual(bound.code, 7, bound.stderr)
        assert.strictEqual(
          bound.stdout,
          "port 8080 as 0\nNoNewPrivs:\t1\nSeccomp:\t2\n".replace("NoNew", "CapEff:\t0000000000000000\nNoNew")
        )
        assert.strictEqual(bound.stderr, "wrong\n")

        const read = yield* svc(["exec", "execs", "-i", "--json", "--", "busybox", "wc", "-c"], {
          stdin: "x".repeat(200_000)
        })
        assert.deepStrictEqual(JSON.parse(read.stdout), { exitCode: 0, stdout: "200000\n", stderr: "" })
        assert.strictEqual((yield* svc(["exec", "execs", "--", "nothing-like-that"])).code, 127)

        const left = (word: string) =>
          Effect.map(exec("busybox ps -o pid,args"), ({ stdout }) => stdout.includes(`sleep ${word}`))
        // Told to end it would not, so it is made to.
        const late = yield* svc([
          "exec",
          "execs",
          "--timeout",
          "2",
          "--",
          ...sh("trap '' TERM; busybox sleep 7777")
        ])
        assert.strictEqual(late.code, 7, late.stderr)
        assert.match(late.stderr, /ended after 2 s/)
        assert.isFalse(yield* left("7777"))

        const gone = new AbortController()
        const answer = yield* Effect.promise(() =>
          fetch(`${url}${path}/app/exec`, {
            method: "POST",
            headers: { "content-type": "application/json", authorization: `Bearer ${apiKey}` },
            body: JSON.stringify({ command: sh("echo begun; exec busybox sleep 8888") }),
            signal: gone.signal
          })
        )
        const first = yield* Effect.promise(async () => (await answer.body?.getReader().read())?.value)
        assert.include(Buffer.from(first ?? []).toString(), '"output"')
        assert.isTrue(yield* left("8888"))
        gone.abort()
        yield* eventually("it has ended with its caller", left("8888"), (still) => !still)

        const endless = yield* svc(["exec", "execs", "--", ...sh("busybox cat /dev/zero")])
        assert.match(endless.stderr, /more than 16777216 bytes/)

        // In a container of its own, made of the same image.
        const beside = yield* svc([
          "run",
          "execs",
          "--",
          ...sh('echo "$SHADE in $SVC_ENVIRONMENT, port $PORT."; echo wrong >&2; exit 9')
        ])
        assert.deepStrictEqual(beside, {
          code: 9,
          stdout: "teal in production, port .\n",
          stderr: "wrong\n"
        })
        const written = JSON.parse((yield* svc(["run", "execs", "--json", "--", ...sh("echo no")])).stdout)
        const { deploymentId } = yield* readApp(path)
        assert.deepInclude(written, { status: "succeeded", exitCode: 0, services: true, deploymentId })
        // The first process of a container is not ended by a signal that it does not listen to.
        const untilTold = sh("trap 'exit 1' TERM; while :; do busybox sleep 0.2; done")
        const short = yield* svc(["run", "execs", "--timeout", "1", "--", ...untilTold])
        assert.strictEqual(short.code, 7, short.stderr)
        const long = yield* Effect.forkChild(svc(["run", "execs", "--", ...untilTold]))
        const ofStatus = (status: string) =>
          Effect.map(call("GET", `${path}/executions?status=${status}`), ({ body }) => body.length === 1)
        yield* eventually("it runs", ofStatus("running"))
        yield* Fiber.interrupt(long)
        yield* eventually("it is cancelled with the command", ofStatus("cancelled"))
        const both = yield* call("POST", `${path}/executions`, {
          body: { image: "alpine:3", deploymentId, command: ["ls"], region: "local" }
        })
        assert.deepStrictEqual([both.status, both.body.code], [422, "invalid"])
        const unknown = yield* call("POST", `${path}/executions`, {
          body: { deploymentId: uuid(), command: ["ls"], region: "local" }
        })
        assert.strictEqual(unknown.status, 404)

        const key = { "idempotency-key": "once" }
        const body = { command: sh("echo once") }
        assert.strictEqual((yield* call("POST", `${path}/app/exec`, { body, headers: key })).status, 200)
        const again = yield* call("POST", `${path}/app/exec`, { body, headers: key })
        assert.deepStrictEqual([again.status, again.body.code], [409, "already_run"])
        const [instance] = yield* readInstances(path)
        const refused = yield* call("POST", `${path}/app/exec`, {
          body: { command: ["ls"], instance: uuid() }
        })
        assert.strictEqual(refused.status, 404)
        const audited = yield* sql(
          "select distinct resource from audit_log where operation = 'apps.exec' and outcome = 200 order by 1"
        )
        assert.deepStrictEqual(
          audited.map(({ resource }) => resource),
          ["/bin/sh", "busybox", "nothing-like-that"].map((program) => `${instance.id} ${program}`)
        )
      }).pipe(Effect.scoped)
  )
})
