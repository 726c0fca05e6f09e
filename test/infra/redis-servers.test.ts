import { spawn } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as net from "node:net"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Host } from "#src/infra/host/Host.ts"
import { cacheLimits } from "#src/infra/host/server-limits.ts"
import { RedisPatience, setSettings } from "#src/infra/redis/RedisControl.ts"
import {
  type RedisServerError,
  RedisServers,
  type RedisSettings,
  type RedisTarget
} from "#src/infra/redis/RedisServers.ts"
import {
  appClient,
  authorityOf,
  bareHost,
  type CacheWorld,
  cacheServices,
  cacheWorld,
  controlOf,
  folderOf,
  reservations,
  socketOf
} from "#test/setup/caches.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { killNaming, processesNaming } from "#test/setup/processes.ts"
import { eventually } from "#test/setup/wait.ts"

const password = `first-${uuid()}`
const settingsFor = (secret: string, values: Partial<RedisSettings> = {}): RedisSettings => ({
  memoryMb: 64,
  cpus: 1,
  maxClients: 100,
  evictionPolicy: "allkeys-lru",
  appendOnly: true,
  passwordDigest: createHash("sha256").update(secret).digest("hex"),
  ...values
})
const settings = settingsFor(password)
const limits = cacheLimits(settings, settings.appendOnly)

type Services = RedisServers | CertificateAuthority | Host

/** One control plane over the world. */
const controlPlane = <A, E, R>(world: CacheWorld, body: Effect.Effect<A, E, R | Services>) =>
  body.pipe(Effect.provide(cacheServices(world), { local: true }))

const test = <E>(name: string, body: (world: CacheWorld) => Effect.Effect<void, E, Scope.Scope | Services>) =>
  it.live(name, () => Effect.flatMap(cacheWorld, (world) => controlPlane(world, body(world))))

const found = (uid: string) =>
  Effect.flatMap(RedisServers, (servers) => Effect.map(servers.inspect(uid), Option.getOrThrow))

/** Every act from nothing to a server that answers. */
const provision = Effect.fn(function* (target: RedisTarget, desired: RedisSettings = settings) {
  const servers = yield* RedisServers
  const authority = yield* CertificateAuthority
  yield* servers.claim(target)
  yield* servers.reservePort(target)
  yield* servers.writeCertificate(target, yield* authority.issue({ hosts: ["127.0.0.1"] }))
  yield* servers.writeConfig(target, desired)
  yield* servers.start(target, limits)
  return yield* found(target.uid)
})

/** It may begin with reading what it has kept. */
const startedAgain = Effect.fn(function* (target: RedisTarget) {
  yield* (yield* RedisServers).start(target, limits)
  yield* eventually(
    "it has read its data",
    found(target.uid),
    ({ process }) => process._tag === "Running" && !process.live.loading
  )
})

const newTarget = (): RedisTarget => ({ uid: uuid(), fence: 1n })

const client = Effect.fn(function* (target: RedisTarget, secret = password, user = "svc") {
  const { port = 0 } = yield* found(target.uid)
  const { caPem: ca } = yield* CertificateAuthority
  return yield* appClient({ port, password: secret, ca, user })
})

/** What a connection or a command was refused with. */
const refusal = <A, R>(self: Effect.Effect<A, { readonly cause?: unknown }, R>) =>
  Effect.map(Effect.flip(self), ({ cause }) => (cause instanceof Error ? cause.message : String(cause)))

const command = (
  connection: { sendCommand: (words: ReadonlyArray<string>) => Promise<unknown> },
  text: string
) => Effect.tryPromise(() => connection.sendCommand(text.split(" ")))

const pidOf = (server: { readonly process: { readonly _tag: string; readonly pid?: number } }) => {
  assert.strictEqual(server.process._tag, "Running")
  return server.process.pid ?? 0
}

const killed = Effect.fn(function* (world: CacheWorld, target: RedisTarget) {
  const folder = folderOf(world, target)
  killNaming(folder)
  yield* eventually(
    "the server has ended",
    Effect.sync(() => processesNaming(folder).length === 0)
  )
  assert.strictEqual((yield* found(target.uid)).process._tag, "Stopped")
})

test("an application signs in over verified TLS and uses its data; it administers nothing, and nobody else gets in", (world) =>
  Effect.gen(function* () {
    const target = newTarget()
    const { port = 0 } = yield* provision(target)
    const application = yield* client(target)
    assert.strictEqual(yield* Effect.promise(() => application.ping()), "PONG")
    assert.match(yield* refusal(client(target, "wrong")), /WRONGPASS/)
    assert.match(yield* refusal(client(target, "", "default")), /NOAUTH|WRONGPASS/)
    const stranger = yield* authorityOf({ ...world, secrets: memorySecrets() })
    assert.match(yield* refusal(appClient({ port, password, ca: stranger })), /certificate/)
    assert.notMatch(yield* plainTextAnswer(port), /^[+-]/, "the protocol is not spoken without TLS")

    // It may use its data as it likes, and administer nothing.
    const allowed = [
      "SET a 1",
      "INFO",
      "KEYS *",
      "SORT list",
      "CLIENT SETNAME worker",
      "CLIENT ID",
      "COMMAND COUNT",
      "SELECT 1",
      "EVAL return(1) 0",
      "XADD stream * a 1",
      "PUBLISH news hello",
      "MULTI",
      "DISCARD",
      "FLUSHDB"
    ]
    for (const text of allowed) yield* command(application, text)
    const denied = [
      "FLUSHALL",
      "CONFIG GET *",
      "CONFIG SET maxmemory 0",
      "CONFIG REWRITE",
      "MODULE LIST",
      "DEBUG SLEEP 0",
      "ACL LIST",
      "ACL SETUSER svc +@all",
      "CLIENT LIST",
      "CLIENT KILL TYPE normal",
      "SHUTDOWN",
      "REPLICAOF 127.0.0.1 1",
      "MIGRATE 127.0.0.1 1 a 0 10",
      "RESTORE a 0 x",
      "SWAPDB 0 1",
      "BGREWRITEAOF",
      "BGSAVE",
      "SAVE",
      "MONITOR",
      "SLOWLOG GET"
    ]
    for (const text of denied)
      assert.match(yield* refusal(command(application, text)), /NOPERM|not allowed/, text)
  }))

test("a new password ends the old one and its connections at once", () =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const target = newTarget()
    const before = yield* provision(target)
    const connected = yield* client(target)
    yield* command(connected, "SET kept yes")
    // Repairing what the user may do leaves its connections alone.
    yield* servers.setUsers(target, settings)
    assert.strictEqual(yield* Effect.promise(() => connected.ping()), "PONG")
    const next = `second-${uuid()}`
    yield* servers.setUsers(target, settingsFor(next))
    assert.match(yield* refusal(client(target)), /WRONGPASS/)
    yield* Effect.flip(command(connected, "GET kept"))
    const renewed = yield* client(target, next)
    assert.strictEqual(yield* command(renewed, "GET kept"), "yes")
    assert.strictEqual(pidOf(yield* found(target.uid)), pidOf(before))
  }))

test("a server outlives its control plane, and the next one finds it", (world) =>
  Effect.gen(function* () {
    const target = newTarget()
    const pid = yield* controlPlane(world, Effect.map(provision(target), pidOf))
    assert.strictEqual(pidOf(yield* controlPlane(world, found(target.uid))), pid)
    // Without its pid file it is still found, by its socket.
    fs.rmSync(path.join(folderOf(world, target), "redis.pid"))
    assert.strictEqual(pidOf(yield* controlPlane(world, found(target.uid))), pid)
    const [line] = processesNaming(folderOf(world, target))
    const { runAs } = yield* Host
    assert.strictEqual(
      fs.statSync(`/proc/${line?.pid}`).uid,
      runAs?.uid ?? process.getuid?.(),
      "runs unprivileged"
    )
  }))

test("a server that somebody began before he was killed is waited for, and not begun twice", (world) =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const { runAs } = yield* Host
    const target = newTarget()
    yield* provision(target)
    yield* servers.stop(target)
    const config = path.join(folderOf(world, target), "redis.conf")
    const begun = spawn("/bin/sh", ["-c", 'sleep 1; exec redis-server "$0"', config], {
      stdio: "ignore",
      ...(runAs === undefined ? {} : { uid: runAs.uid, gid: runAs.gid })
    })
    yield* startedAgain(target)
    assert.strictEqual(pidOf(yield* found(target.uid)), begun.pid)
    assert.deepStrictEqual(
      processesNaming(config).map(({ pid }) => pid),
      [begun.pid]
    )
  }))

test("a server that cannot be reached any more is ended before another is begun", (world) =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const target = newTarget()
    const lost = pidOf(yield* provision(target))
    yield* command(yield* client(target), "SET kept yes")
    fs.rmSync(path.join(folderOf(world, target), "redis.pid"))
    fs.rmSync(socketOf(world, target.uid))
    assert.strictEqual((yield* found(target.uid)).process._tag, "Stopped")
    const error = yield* Effect.flip(
      servers
        .start(target, limits)
        .pipe(Effect.provideService(RedisPatience, { answerMs: 8_000, stopMs: 10_000, startMs: 100 }))
    )
    assert.strictEqual(error.reason, "NotAnswering")
    yield* startedAgain(target)
    assert.notStrictEqual(pidOf(yield* found(target.uid)), lost)
    assert.strictEqual(processesNaming(folderOf(world, target)).length, 1)
    assert.strictEqual(yield* command(yield* client(target), "GET kept"), "yes")
  }))

test("a process that is ending, and still takes connections, is waited for", (world) =>
  Effect.gen(function* () {
    const target = newTarget()
    yield* provision(target)
    yield* killed(world, target)
    const socket = socketOf(world, target.uid)
    fs.rmSync(socket, { force: true })
    let taken = 0
    const ending = net.createServer((connection) => {
      connection.destroy()
      if (++taken === 3) ending.close()
    })
    yield* Effect.callback<void>((resume) => {
      ending.listen(socket, () => resume(Effect.void))
    })
    assert.strictEqual((yield* found(target.uid)).process._tag, "Stopped")
    assert.strictEqual(taken, 3)
  }))

test("turning the append-only file on keeps what was in memory, and what it holds survives the death of the process", (world) =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const target = newTarget()
    const before = yield* provision(target, settingsFor(password, { appendOnly: false }))
    const application = yield* client(target)
    yield* command(application, "SET early yes")
    yield* servers.writeConfig(target, settings)
    yield* servers.setConfig(target, settings)
    yield* eventually(
      "the file is complete",
      found(target.uid),
      ({ appendOnlyFile }) => appendOnlyFile === "complete"
    )
    assert.strictEqual(yield* command(application, "GET early"), "yes", "the connection lives")
    for (let i = 0; i < 100; i++) yield* command(application, `SET key:${i} ${i}`)
    // While the disk is busy with what came before, Redis writes nothing for up to two seconds (appendfsync everysec).
    const folder = path.join(folderOf(world, target), "appendonlydir")
    const written = Effect.sync(() =>
      fs.readdirSync(folder).map((name) => fs.readFileSync(path.join(folder, name), "latin1"))
    )
    yield* eventually("the last one is in the file", written, (files) => files.join().includes("key:99"))
    yield* killed(world, target)
    yield* startedAgain(target)
    assert.notStrictEqual(pidOf(yield* found(target.uid)), pidOf(before))
    const again = yield* client(target)
    assert.strictEqual(yield* command(again, "DBSIZE"), 101)
    assert.strictEqual(yield* command(again, "GET early"), "yes")
    assert.strictEqual(yield* command(again, "GET key:99"), "99")
  }))

test("no password is in a process list or in a file", (world) =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const target = newTarget()
    yield* provision(target)
    const next = `second-${uuid()}`
    yield* client(target)
    yield* refusal(client(target, "wrong"))
    yield* servers.writeConfig(target, settingsFor(next))
    yield* servers.setUsers(target, settingsFor(next))
    yield* client(target, next)
    const control = Redacted.value((yield* controlOf(world, target)).password)
    const secrets = [password, next, control].flatMap((text) => [
      text,
      Buffer.from(text).toString("base64").replace(/=+$/, ""),
      Buffer.from(text).toString("hex")
    ])
    const [line] = processesNaming(folderOf(world, target))
    assert.isDefined(line)
    const files = filesIn(world.dataDir)
    assert.include(files, path.join(folderOf(world, target), "users.acl"))
    const texts = [
      ...files.map((file) => fs.readFileSync(file, "latin1")),
      line?.line ?? "",
      fs.readFileSync(`/proc/${line?.pid}/environ`, "utf8")
    ]
    for (const secret of secrets)
      assert.isFalse(
        texts.some((text) => text.includes(secret)),
        secret
      )
    const folder = folderOf(world, target)
    for (const name of [".", "users.acl", ...fs.readdirSync(folder).filter((file) => file.endsWith(".pem"))])
      assert.strictEqual(fs.statSync(path.join(folder, name)).mode & 0o077, 0, `${name} is private`)
  }))

test("an earlier reconcile is refused once a later one has begun", () =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const late = newTarget()
    const before = yield* provision(late)
    yield* servers.claim({ ...late, fence: 2n })
    const acts = [
      servers.claim(late),
      servers.writeConfig(late, settings),
      servers.setConfig(late, settings),
      servers.setUsers(late, settingsFor("other")),
      servers.stop(late),
      servers.delete(late)
    ]
    for (const act of acts) assert.strictEqual((yield* Effect.flip(act)).reason, "Fenced")
    assert.strictEqual(pidOf(yield* found(late.uid)), pidOf(before))
    yield* client(late)
  }))

test("a port that another program holds is named in the error", (world) =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const target = newTarget()
    const { port = 0 } = yield* provision(target)
    yield* servers.stop(target)
    const blocker = yield* listening(port)
    const error: RedisServerError = yield* Effect.flip(servers.start(target, limits))
    assert.strictEqual(error.reason, "StartFailed")
    assert.include(error.message, "Address already in use")
    yield* Effect.promise(() => new Promise((resolve) => blocker.close(resolve)))
    yield* servers.start(target, limits)
    assert.deepStrictEqual(
      reservations(world).map((reservation) => reservation.port),
      [String(port)]
    )
  }))

/** For looks at a server that will not answer. */
const givenUpSoon = Effect.provideService(RedisPatience, { answerMs: 1_500, stopMs: 10_000, startMs: 10_000 })
/** For a server that will not end by itself. */
const endedSoon = Effect.provideService(RedisPatience, { answerMs: 8_000, stopMs: 1_500, startMs: 10_000 })

test("a server that hangs is neither taken for stopped nor for healthy, and can be ended", (world) =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const target = newTarget()
    const pid = pidOf(yield* provision(target))
    process.kill(pid, "SIGSTOP")
    const { process: hanging } = yield* givenUpSoon(found(target.uid))
    assert.deepInclude(hanging, { _tag: "Uncontrolled", state: "silent", pid })
    process.kill(pid, "SIGCONT")
    assert.strictEqual(pidOf(yield* found(target.uid)), pid)
    process.kill(pid, "SIGSTOP")
    yield* servers.stop(target)
    assert.deepStrictEqual(processesNaming(folderOf(world, target)), [])
  }).pipe(endedSoon))

/** Begins a script that never ends by itself, and waits until the server says so, which it does soon here. */
const loop = Effect.fn(function* (world: CacheWorld, target: RedisTarget, script: string) {
  yield* setSettings(yield* controlOf(world, target), [["busy-reply-threshold", "100"]])
  const connection = yield* client(target)
  const running = yield* Effect.forkChild(refusal(command(connection, `EVAL ${script} 0`)))
  const busy = yield* eventually(
    "the server is busy",
    found(target.uid),
    ({ process }) => process._tag === "Uncontrolled" && process.state === "busy"
  )
  assert.deepInclude(busy.process, { message: "A script keeps the server busy" })
  return running
})

test("a script that only reads is ended without its server", (world) =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const target = newTarget()
    const pid = pidOf(yield* provision(target, { ...settings, appendOnly: false }))
    yield* command(yield* client(target), "SET kept yes")
    const running = yield* loop(world, target, "while(true)do(function()end)()end")
    yield* servers.killScript(target)
    assert.match(yield* Fiber.join(running), /killed by user/)
    assert.strictEqual(pidOf(yield* found(target.uid)), pid)
    assert.strictEqual(yield* command(yield* client(target), "GET kept"), "yes")
    // There may be none left by the time it is to be ended.
    yield* servers.killScript(target)
  }))

test("a script that has written is ended with its server, which keeps what was acknowledged before", (world) =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const target = newTarget()
    yield* provision(target)
    yield* command(yield* client(target), "SET kept yes")
    const running = yield* loop(
      world,
      target,
      "redis.call('set','kept','no')while(true)do(function()end)()end"
    )
    assert.strictEqual((yield* Effect.flip(servers.killScript(target))).reason, "Unkillable")
    yield* servers.shutDown(target)
    yield* Fiber.join(running)
    assert.deepStrictEqual(processesNaming(folderOf(world, target)), [])
    yield* startedAgain(target)
    assert.strictEqual(yield* command(yield* client(target), "GET kept"), "yes")
  }))

test("every server can be stopped at once, and its data stays", (world) =>
  Effect.gen(function* () {
    const servers = yield* RedisServers
    const targets = [newTarget(), newTarget()]
    for (const target of targets) {
      yield* provision(target)
      yield* command(yield* client(target), "SET kept yes")
    }
    yield* servers.stopAll
    assert.deepStrictEqual(processesNaming(world.dataDir), [])
    for (const target of targets) {
      yield* startedAgain(target)
      assert.strictEqual(yield* command(yield* client(target), "GET kept"), "yes")
    }
  }))

it.live("a host without a server program says which package to install", () =>
  Effect.gen(function* () {
    const world = yield* cacheWorld
    const error = yield* Effect.flatMap(RedisServers, (servers) => Effect.flip(servers.requireProgram)).pipe(
      Effect.provide(cacheServices(world, bareHost), { local: true })
    )
    assert.strictEqual(error.reason, "HostDependencyMissing")
    assert.include(error.message, "apt-get install redis-server")
  })
)

const filesIn = (folder: string): ReadonlyArray<string> =>
  fs
    .readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))

/** Everything that a server sends to a client that speaks the protocol without TLS. */
const plainTextAnswer = (port: number) =>
  Effect.callback<string>((resume) => {
    let answer = ""
    const socket = net.connect(port, "127.0.0.1", () => socket.write("PING\r\n"))
    socket.on("data", (chunk) => {
      answer += chunk.toString("latin1")
    })
    socket.on("error", () => undefined)
    socket.on("close", () => resume(Effect.succeed(answer)))
  })

const listening = (port: number) =>
  Effect.acquireRelease(
    Effect.callback<net.Server>((resume) => {
      const server = net.createServer()
      server.listen(port, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) => Effect.sync(() => server.close())
  )
