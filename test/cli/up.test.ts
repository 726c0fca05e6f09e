/** The control plane as a newcomer starts it: an empty folder, the embedded store, a real program that is stopped and killed. */
import { spawn } from "node:child_process"
import * as fs from "node:fs"
import * as net from "node:net"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { emptyDatabase } from "#test/setup/database.ts"
import { freePort, managedPorts } from "#test/setup/postgres.ts"
import { processesNaming, sweep } from "#test/setup/processes.ts"
import { newUser, type Outcome, type Running } from "./svc.ts"

const serving = "Ctrl-C stops the control plane"

/** A user whose control plane has ports of its own; whatever was started ends with the test. */
const newcomer = Effect.gen(function* () {
  const user = yield* newUser
  const dataDir = path.join(user.cwd, "data")
  const started: Array<Running> = []
  yield* Effect.addFinalizer(() =>
    Effect.promise(async () => {
      for (const { child } of started) child.kill("SIGKILL")
      await Promise.all(started.map(({ ended }) => ended))
      await sweep(dataDir)
    })
  )
  const ports = Effect.promise(async () => {
    const [port, metrics, https, http] = await Promise.all([freePort(), freePort(), freePort(), freePort()])
    const { first, last } = managedPorts
    return {
      SVC_PORT: String(port),
      SVC_METRICS_PORT: String(metrics),
      SVC_EDGE_HTTPS_PORT: String(https),
      SVC_EDGE_HTTP_PORT: String(http),
      SVC_MANAGED_PORTS: `${first}-${last}`
    }
  })
  const env: Record<string, string> = { SVC_DATA_DIR: dataDir, ...(yield* ports) }
  return {
    ...user,
    dataDir,
    env,
    ports,
    port: Number(env["SVC_PORT"]),
    svc: (args: ReadonlyArray<string>, more: Record<string, string> = {}) =>
      user.svc(args, { env: { ...env, ...more } }),
    /** As a process of its own, as it is for people. */
    program: (args: ReadonlyArray<string>) => user.program(args, { env }),
    /** Starts it, without waiting for anything. */
    up: (args: ReadonlyArray<string> = [], more: Record<string, string> = {}) => {
      const running = user.start(["up", ...args], { env: { ...env, ...more } })
      started.push(running)
      return running
    }
  }
})

const says = (running: Running, text: string) => Effect.promise(() => running.says(text))
const end = (running: Running, signal: NodeJS.Signals): Effect.Effect<Outcome> =>
  Effect.promise(() => {
    running.child.kill(signal)
    return running.ended
  })
const servers = (dataDir: string) =>
  ["caches", "databases", "postgres"].map((kind) => processesNaming(path.join(dataDir, kind)).length > 0)

it.live(
  "the first start makes everything and says how to connect, the next changes nothing, down stops, --delete removes",
  () =>
    Effect.gen(function* () {
      const { svc, program, up, cwd, dataDir, credentialsFile, ports, port } = yield* newcomer
      const compiled = path.join(cwd, "compiled")
      const first = up([], { NODE_COMPILE_CACHE: compiled })
      yield* says(first, serving)
      const modules = fs.readdirSync(compiled, { recursive: true })
      assert.isAbove(modules.length, 4, "what it compiled is kept for the next start, however it ends")
      const told = first.stderr()
      assert.match(told, /^ {2}svc_[0-9a-f]{40}$/m)
      for (const address of ["Database/main", "Cache/sessions", "Cache/pages"]) {
        assert.match(told, new RegExp(`quickstart/production/${address} {2}ready`))
        assert.match(told, new RegExp(`quickstart/production/${address} +(postgres|rediss)://`))
      }
      assert.strictEqual(first.stdout(), "")
      assert.strictEqual(fs.statSync(credentialsFile).mode & 0o777, 0o600)
      const before = fs.readFileSync(credentialsFile, "utf8")
      assert.include(before, /svc_[0-9a-f]{40}/.exec(told)?.[0] ?? "nothing")
      const status = () => Effect.map(svc(["status", "--json"]), ({ stdout }) => JSON.parse(stdout).resources)
      const generations = (resources: ReadonlyArray<{ uid: string; generation: number }>) =>
        resources.map(({ uid, generation }) => `${uid} ${generation}`).sort()
      const made = yield* status()
      assert.isAbove(made.length, 5)

      const twice = yield* svc(["up"])
      assert.strictEqual(twice.code, 1)
      assert.include(twice.stderr, "runs already")

      const stopped = yield* end(first, "SIGINT")
      assert.strictEqual(stopped.code, 0, stopped.stderr)
      assert.deepStrictEqual(servers(dataDir), [true, true, true])

      // At another address, as after a change of SVC_PORT, the operator's credential is found again.
      const elsewhere = yield* ports
      const second = up([], elsewhere)
      yield* says(second, serving)
      assert.include(second.stderr(), `Found ${made.length} resources again, ${made.length} of them ready`)
      assert.deepStrictEqual(generations(yield* status()), generations(made))
      assert.strictEqual(
        fs.readFileSync(credentialsFile, "utf8"),
        before.replace(String(port), elsewhere.SVC_PORT)
      )

      // What a dead control plane left behind now names somebody else's process, who must not be harmed.
      const bystander = spawn("sleep", ["300"], { stdio: "ignore" })
      const stale = path.join(dataDir, "control-planes", `${bystander.pid}.json`)
      const [own = ""] = fs.readdirSync(path.dirname(stale))
      const { began, apiUrl } = JSON.parse(fs.readFileSync(path.join(path.dirname(stale), own), "utf8"))
      fs.writeFileSync(stale, JSON.stringify({ pid: bystander.pid, began, apiUrl }))
      const down = yield* program(["down"])
      assert.strictEqual(down.code, 0, down.stderr)
      assert.strictEqual((yield* Effect.promise(() => second.ended)).code, 0)
      assert.deepStrictEqual(servers(dataDir), [false, false, false])
      assert.strictEqual(bystander.exitCode ?? bystander.signalCode, null)
      assert.isFalse(fs.existsSync(stale))
      bystander.kill("SIGKILL")

      const unsure = yield* svc(["down", "--delete"])
      assert.strictEqual(unsure.code, 2)
      assert.isTrue(fs.existsSync(dataDir))
      const gone = yield* svc(["down", "--delete", "--yes"])
      assert.strictEqual(gone.code, 0, gone.stderr)
      assert.isFalse(fs.existsSync(dataDir))
      assert.deepStrictEqual(processesNaming(dataDir), [])
      assert.isFalse(fs.existsSync(credentialsFile))
    }).pipe(Effect.scoped),
  900_000
)

it.live(
  "after a taken port, two kills in its first start, and without its credentials, it is usable again",
  () =>
    Effect.gen(function* () {
      const { up, svc, cwd, dataDir, credentialsFile, port } = yield* newcomer
      const url = Redacted.value(yield* emptyDatabase)
      const store = { SVC_DATABASE_URL: url }

      // A taken port is said before anything is made.
      const holder = net.createServer()
      yield* Effect.promise(() => new Promise<void>((resolve) => holder.listen(port, "127.0.0.1", resolve)))
      const refused = yield* svc(["up"], store)
      assert.strictEqual(refused.code, 1)
      assert.include(refused.stderr, `Port ${port} is taken`)
      assert.isFalse(fs.existsSync(dataDir))
      assert.isFalse(fs.existsSync(credentialsFile))
      holder.close()

      // The credentials are written, then the store commits, then it listens: killed between each two of these.
      const look = postgres(url, { max: 1, onnotice: () => {} })
      yield* Effect.addFinalizer(() => Effect.promise(() => look.end({ timeout: 1 })))
      const isCommitted = () =>
        look`select from organization`.then(
          (rows) => rows.length > 0,
          () => false
        )
      for (const moment of ["kept", "committed"] as const) {
        const killed = up(["--no-apply"], store)
        yield* Effect.promise(async () => {
          const deadline = Date.now() + 90_000
          while (!(moment === "kept" ? fs.existsSync(credentialsFile) : await isCommitted())) {
            if (Date.now() > deadline || killed.child.exitCode !== null)
              throw new Error(`never ${moment}: ${killed.stderr()}`)
            await new Promise((resolve) => setTimeout(resolve, 1))
          }
        })
        yield* end(killed, "SIGKILL")
      }
      const first = up(["--no-apply"], store)
      yield* says(first, serving)
      assert.notInclude(first.stderr(), "First start")
      const [key, session] = yield* Effect.all(
        [svc(["whoami", "--json"]), svc(["api", "GET", "/v1/me", "--owner"])],
        { concurrency: 2 }
      )
      assert.deepStrictEqual([key.code, session.code], [0, 0], first.stderr())
      assert.strictEqual(JSON.parse(session.stdout).organizations[0].role, "owner")

      // The state would go on naming what is gone.
      const refusal = yield* svc(["down", "--delete", "--yes"], store)
      assert.strictEqual(refusal.code, 2)
      assert.strictEqual(first.child.exitCode, null)

      // Lost credentials are made anew by who operates the machine.
      const old = JSON.parse(fs.readFileSync(credentialsFile, "utf8"))
      yield* svc(["api", "POST", "/v1/orgs/main/projects", "--data", '{"name":"Shop","slug":"shop"}'])
      fs.writeFileSync(path.join(cwd, "shop.env"), "GREETING=hello\n")
      assert.strictEqual((yield* svc(["env", "set", "shop", "--from-file", "shop.env"])).code, 0)
      fs.rmSync(credentialsFile)
      assert.strictEqual((yield* svc(["status"])).code, 4)
      assert.strictEqual((yield* svc(["admin", "credentials", "--org", "nope"], store)).code, 5)
      assert.isFalse(fs.existsSync(credentialsFile))
      const made = yield* svc(["admin", "credentials"], store)
      assert.strictEqual(made.code, 0, made.stderr)
      const entry = JSON.parse(fs.readFileSync(credentialsFile, "utf8"))
      assert.notStrictEqual(entry.apiKey, old.apiKey)
      assert.notInclude(made.stdout + made.stderr, entry.apiKey)
      assert.strictEqual((yield* svc(["whoami"])).code, 0)
      yield* end(first, "SIGTERM")

      // Secrets are sealed with a new key. That the old one can go then: test/store/sealed.store.test.ts.
      const ring = path.join(dataDir, "encryption.keys")
      const newest = `k-new:${Buffer.alloc(32, 7).toString("base64")}\n`
      fs.writeFileSync(ring, newest + fs.readFileSync(ring, "utf8"))
      const rotated = yield* svc(["admin", "rotate-keys", "--json"], store)
      assert.strictEqual(rotated.code, 0, rotated.stderr)
      const { keyId, resealed } = JSON.parse(rotated.stdout)
      assert.strictEqual(keyId, "k-new")
      assert.isAbove(resealed, 0)
    }).pipe(Effect.scoped),
  900_000
)

it.live("a folder that holds something else is not taken for a data folder", () =>
  Effect.gen(function* () {
    const { svc, dataDir } = yield* newcomer
    fs.mkdirSync(dataDir)
    fs.writeFileSync(path.join(dataDir, "thesis.txt"), "years of work")
    const [up, down] = yield* Effect.all([svc(["up"]), svc(["down", "--delete", "--yes"])], {
      concurrency: 2
    })
    assert.strictEqual(up.code, 1)
    assert.include(up.stderr, "was not made by svc")
    assert.strictEqual(down.code, 0)
    assert.deepStrictEqual(fs.readdirSync(dataDir), ["thesis.txt"])
  }).pipe(Effect.scoped)
)

it.live(
  "with the engine on a thread of its own it makes the same, counts on one page, and drains when it is stopped",
  () =>
    Effect.gen(function* () {
      const { up, env } = yield* newcomer
      const running = up([], { SVC_ENGINE_THREAD: "own" })
      yield* says(running, serving)
      assert.match(running.stderr(), /quickstart\/production\/Cache\/pages {2}ready/)
      const page = yield* Effect.promise(async () =>
        (await fetch(`http://127.0.0.1:${env["SVC_METRICS_PORT"]}/metrics`)).text()
      )
      const types = page.match(/^# TYPE \S+/gm) ?? []
      assert.strictEqual(new Set(types).size, types.length)
      // One counts requests, the other reconciles.
      assert.match(page, /^svc_reconcile_late_seconds_count\{kind="Cache"\} [1-9]/m)
      const stopped = yield* end(running, "SIGINT")
      assert.strictEqual(stopped.code, 0, stopped.stderr)
      assert.notInclude(stopped.stderr, "thread ended")
    })
)

it.live("an engine on a thread of its own that cannot be started ends the program, which says why", () =>
  Effect.gen(function* () {
    const { up } = yield* newcomer
    const running = up(["--no-apply"], { SVC_ENGINE_THREAD: "own", SVC_REGION: "elsewhere" })
    const { code, stderr } = yield* Effect.promise(() => running.ended)
    assert.strictEqual(code, 1, stderr)
    assert.include(stderr, "elsewhere")
  })
)
