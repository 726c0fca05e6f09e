/** Programs in instances of apps, with real containers: what they leave, and what is told of them. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { endOverduePrograms } from "#src/infra/containers/end-program.ts"
import { marks } from "#src/infra/containers/own-processes.ts"
import { Containers } from "#test/executions/world.ts"
import { sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { appPlane, deploy, makeShop, operator, readInstances, ready, server } from "./world.ts"

const patience = 300_000

/** An app that runs, and `svc exec` in it. */
const appWith = Effect.fnUntraced(function* (slug: string) {
  const svc = yield* operator
  const { path } = yield* makeShop(slug)
  yield* ready(path, yield* deploy(path, server(slug)))
  const run = (flags: ReadonlyArray<string>, command: ReadonlyArray<string>, stdin?: string) =>
    svc(["exec", slug, ...flags, "--", ...command], stdin === undefined ? {} : { stdin })
  const processes = Effect.map(run([], ["busybox", "ps", "-o", "pid,args"]), ({ stdout }) => stdout)
  return { path, run, processes }
})

layer(appPlane(), { excludeTestServices: true, timeout: "3 minutes" })("programs in instances", (it) => {
  it.effect(
    "end with all that they have started, and nothing of the app ends with them",
    () =>
      Effect.gen(function* () {
        const { path, run, processes } = yield* appWith("leavers")
        const before = yield* readInstances(path)
        const short = ["--timeout", "2"]

        // Two that do not end when told to, one of them the program itself.
        const deaf = yield* run(
          short,
          sh("trap '' TERM; (busybox sleep 7101; busybox sleep 7102) & busybox sleep 7103")
        )
        assert.strictEqual(deaf.code, 7, deaf.stderr)
        const deafChild = yield* run(
          short,
          sh("(trap '' TERM; busybox sleep 7104; busybox sleep 7105) & wait")
        )
        assert.strictEqual(deafChild.code, 7, deafChild.stderr)
        // Without its variables and in a session of its own, while its parent is there.
        const stranger = yield* run(short, sh("busybox env -i busybox setsid busybox sleep 7106 & wait"))
        assert.strictEqual(stranger.code, 7, stranger.stderr)
        // The program has ended; what prints is still there, in a session of its own. Podman takes it for over, Docker not.
        const orphan = yield* run(short, sh("busybox setsid busybox sleep 7107 & exit 0"))
        assert.include([0, 7], orphan.code, orphan.stderr)
        // It ends by itself.
        const own = yield* run([], sh("busybox setsid busybox sleep 7108 >/dev/null 2>&1 & exit 3"))
        assert.strictEqual(own.code, 3, own.stderr)

        const left = yield* processes
        assert.notMatch(left, /sleep 71/)
        assert.match(left, /httpd/)
        assert.deepStrictEqual(
          (yield* readInstances(path)).map(({ id, state }) => [id, state]),
          before.map(({ id, state }) => [id, state])
        )
      }).pipe(Effect.scoped),
    patience
  )

  it.effect(
    "end once their time is over, also where the control plane that was to see to it was killed",
    () =>
      Effect.gen(function* () {
        const { path, processes } = yield* appWith("left")
        const { podman } = yield* Containers
        const [instance = assert.fail("none runs")] = yield* readInstances(path)
        const name = `svc-${instance.id}`
        const leave = (seconds: number, endsBy: number) =>
          podman(
            ...["exec", "--detach", "--env", `${marks.id}=left-${seconds}`],
            ...["--env", `${marks.endsBy}=${endsBy}`, name],
            ...sh(`trap '' TERM; (busybox setsid busybox sleep ${seconds}) & busybox sleep ${seconds}`)
          )
        leave(7201, Date.now() - 1)
        leave(7301, Date.now() + 600_000)
        const both = (text: string) => text.split("sleep 7201").length > 2 && text.includes("sleep 7301")
        yield* eventually("they run", processes, both)
        const id = podman("inspect", "--format", "{{.Id}}", name).trim()
        assert.strictEqual(yield* endOverduePrograms(new Set([id]), Date.now()), 1)
        const after = yield* processes
        assert.notMatch(after, /sleep 7201/)
        assert.match(after, /sleep 7301/)
        assert.match(after, /httpd/)
        assert.strictEqual(yield* endOverduePrograms(new Set(["0".repeat(64)]), Date.now() + 3_600_000), 0)
      }).pipe(Effect.scoped),
    patience
  )

  it.effect(
    "need not read what they are given",
    () =>
      Effect.gen(function* () {
        const { run } = yield* appWith("unread")
        const input = "x".repeat(700_000)
        // Podman may drop the end of what is printed by a program that ends before it has read everything.
        const none = yield* run(["-i"], sh("echo enough; exit 5"), input)
        assert.strictEqual(none.code, 5, none.stderr)
        const some = yield* run(["-i"], sh("busybox head -c 3; exit 6"), input)
        assert.strictEqual(some.code, 6, some.stderr)
        const whole = yield* run(["-i"], sh("busybox wc -c; exit 7"), input)
        assert.deepStrictEqual([whole.code, whole.stdout], [7, "700000\n"], whole.stderr)
      }).pipe(Effect.scoped),
    patience
  )

  it.effect(
    "are begun by a later try of a request whose first one came before anything could begin, and never twice",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const engine = yield* Containers
        const { path, processes } = yield* appWith("late")
        const begin = call("POST", `${path}/app/exec`, {
          body: { command: sh("echo begun") },
          headers: { "idempotency-key": "late" }
        })
        yield* Effect.promise(engine.kill)
        const early = yield* begin
        yield* Effect.promise(() => engine.restart())
        assert.deepStrictEqual([early.status, early.body.code], [503, "engine_unreachable"])
        yield* eventually("the engine answers again", processes, (text) => text.includes("httpd"))
        const begun = yield* begin
        assert.strictEqual(begun.status, 200, begun.text)
        assert.include(begun.text, Buffer.from("begun\n").toString("base64"))
        const again = yield* begin
        assert.deepStrictEqual([again.status, again.body.code], [409, "already_run"])
      }).pipe(Effect.scoped),
    patience
  )
})
