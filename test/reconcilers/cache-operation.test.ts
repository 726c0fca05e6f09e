/** A cache in use: what applications that are connected to it notice of the changes that a reconcile makes. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as tls from "node:tls"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { CacheStatus } from "#schemas/cache.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import { RedisPatience } from "#src/infra/redis/RedisControl.ts"
import {
  appClient,
  authorityOf,
  bareHost,
  type CacheResource,
  type CacheWorld,
  cacheReconciler,
  cacheRemains,
  cacheWorld,
  folderOf,
  inspectCache,
  makeCache
} from "#test/setup/caches.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { passwordOf, setPassword } from "#test/setup/machine.ts"
import { processesNaming } from "#test/setup/processes.ts"
import { eventually } from "#test/setup/wait.ts"
import { look, reachGoal, type Target } from "./settle.ts"

let fence = 0n

/** One run of one control plane. */
const run = <A, E, R>(
  world: CacheWorld,
  resource: CacheResource,
  body: (target: Target, resource: CacheResource) => Effect.Effect<A, E, R>,
  layer = cacheReconciler(world)
) =>
  Effect.gen(function* () {
    const registration = (yield* Registry).registrations.get("Cache")
    if (registration === undefined) return yield* Effect.die("no reconciler is registered")
    return yield* body(registration.reconciler, { ...resource, fence: ++fence })
  }).pipe(Effect.provide(layer, { local: true }))

const settle = (world: CacheWorld, resource: CacheResource) =>
  run(world, resource, (target, current) => reachGoal(target, current))

const test = <E>(name: string, body: (world: CacheWorld) => Effect.Effect<void, E, Scope.Scope>) =>
  it.live(name, () => Effect.flatMap(cacheWorld, body))

const client = Effect.fn(function* (
  world: CacheWorld,
  resource: CacheResource,
  password = passwordOf(world, resource)
) {
  const { port = 0 } = yield* inspectCache(world, resource)
  return yield* appClient({ port, password, ca: yield* authorityOf(world) })
})

const pidOf = (world: CacheWorld, resource: CacheResource) =>
  processesNaming(folderOf(world, resource)).map(({ pid }) => pid)

test("a rotation ends the old password and its connections, and nothing restarts", (world) =>
  Effect.gen(function* () {
    const resource = makeCache(world)
    yield* settle(world, resource)
    const old = passwordOf(world, resource)
    const connected = yield* client(world, resource)
    yield* Effect.promise(() => connected.set("kept", "yes"))
    const before = pidOf(world, resource)
    setPassword(world, resource, `second-${uuid()}`)
    yield* settle(world, { ...resource, spec: { ...resource.spec, credentialVersion: 2 } })
    const refused = yield* Effect.flip(client(world, resource, old))
    assert.match(String(refused.cause), /WRONGPASS/)
    yield* Effect.flip(Effect.tryPromise(() => connected.get("kept")))
    const renewed = yield* client(world, resource)
    assert.strictEqual(yield* Effect.promise(() => renewed.get("kept")), "yes")
    assert.deepStrictEqual(pidOf(world, resource), before)
  }))

test("size, eviction policy and persistence change under a connection that stays", (world) =>
  Effect.gen(function* () {
    const resource = makeCache(world, { persistence: "none" })
    yield* settle(world, resource)
    const connected = yield* client(world, resource)
    yield* Effect.promise(() => connected.set("kept", "yes"))
    const before = pidOf(world, resource)
    yield* settle(world, {
      ...resource,
      spec: { ...resource.spec, sku: "cache-s2", evictionPolicy: "volatile-lru", persistence: "aof" }
    })
    assert.strictEqual(yield* Effect.promise(() => connected.get("kept")), "yes")
    assert.deepStrictEqual(pidOf(world, resource), before)
    const info = yield* Effect.promise(() => connected.info("memory"))
    assert.include(info, `maxmemory:${4096 * 1024 * 1024}`)
    assert.include(info, "maxmemory_policy:volatile-lru")
  }))

test("a server killed by hand comes back with what it had written", (world) =>
  Effect.gen(function* () {
    const resource = makeCache(world)
    yield* settle(world, resource)
    const connected = yield* client(world, resource)
    yield* Effect.promise(() => connected.set("kept", "yes"))
    const [pid = 0] = pidOf(world, resource)
    process.kill(pid, "SIGKILL")
    yield* eventually(
      "the server has ended",
      Effect.sync(() => pidOf(world, resource).length === 0)
    )
    const down = yield* run(world, resource, look)
    assert.deepInclude(down, { ready: false, reason: "ServerDown" })
    yield* settle(world, resource)
    const again = yield* client(world, resource)
    assert.strictEqual(yield* Effect.promise(() => again.get("kept")), "yes")
    assert.notInclude(pidOf(world, resource), pid)
  }))

test("a renewed certificate is served at once, and connections go on", (world) =>
  Effect.gen(function* () {
    const resource = makeCache(world)
    yield* settle(world, resource)
    const { port = 0 } = yield* inspectCache(world, resource)
    const ca = yield* authorityOf(world)
    const connected = yield* client(world, resource)
    const before = yield* servedSerial(port, ca)
    const folder = folderOf(world, resource)
    for (const name of fs.readdirSync(folder)) if (name.endsWith(".pem")) fs.rmSync(path.join(folder, name))
    yield* settle(world, resource)
    assert.notStrictEqual(yield* servedSerial(port, ca), before)
    assert.strictEqual(yield* Effect.promise(() => connected.ping()), "PONG")
    assert.lengthOf(
      fs.readdirSync(folder).filter((name) => name.endsWith(".pem")),
      1
    )
  }))

test("without a server program the cache says what to install, and nothing is made", (world) =>
  Effect.gen(function* () {
    const resource = makeCache(world)
    const error = yield* Effect.flip(
      run(
        world,
        resource,
        (target, current) =>
          Effect.flatMap(givenUpSoon(look(target, current)), (observation) =>
            target.converge(current, observation)
          ),
        cacheReconciler(world, bareHost)
      )
    )
    assert.deepInclude(error, { _tag: "Retryable", reason: "HostDependencyMissing" })
    assert.match(error.message, /apt-get install redis-server/)
    assert.deepStrictEqual(yield* cacheRemains(world, resource), [])
  }))

/** A look, and the resource with what the engine would store of it, `ageMs` later. */
const lookAt = (world: CacheWorld, resource: CacheResource, ageMs = 0) =>
  Effect.map(run(world, resource, look), (observation) => {
    if (observation._tag === "Absent") assert.fail("the cache is absent")
    const { unansweredSince, ...status } = observation.status as CacheStatus
    const since = unansweredSince === undefined ? undefined : Date.parse(unansweredSince) - ageMs
    // However slow this machine is, the next look follows this one.
    const seen = Date.now() + 3_600_000
    const later: CacheStatus =
      since === undefined
        ? status
        : {
            ...status,
            unansweredSince: new Date(since).toISOString(),
            unansweredSeenAt: new Date(seen).toISOString()
          }
    return {
      observation,
      fields: observation.differences.map(({ field }) => field),
      resource: { ...resource, status: later }
    }
  })

/** For looks at a server that will not answer. */
const givenUpSoon = Effect.provideService(RedisPatience, { answerMs: 1_500, stopMs: 10_000, startMs: 10_000 })
/** For a server that will not end by itself. */
const endedSoon = Effect.provideService(RedisPatience, { answerMs: 8_000, stopMs: 1_500, startMs: 10_000 })

test("a server that hangs is waited for and not ready, and started again when that lasts", (world) =>
  Effect.gen(function* () {
    const made = makeCache(world)
    yield* settle(world, made)
    const [pid = 0] = pidOf(world, made)
    process.kill(pid, "SIGSTOP")
    const hanging = yield* givenUpSoon(lookAt(world, made, 121_000))
    assert.deepInclude(hanging.observation, { ready: false, reason: "NotAnswering", differences: [] })
    process.kill(pid, "SIGCONT")
    assert.notProperty((yield* lookAt(world, hanging.resource)).resource.status, "unansweredSince")
    assert.deepStrictEqual(pidOf(world, made), [pid])
    process.kill(pid, "SIGSTOP")
    // Nobody has looked for ten minutes: whether it has answered meanwhile is not known.
    const tenMinutesAgo = new Date(Date.now() - 600_000).toISOString()
    const status = {
      ...hanging.resource.status,
      unansweredSince: tenMinutesAgo,
      unansweredSeenAt: tenMinutesAgo
    } as CacheStatus
    const anew = yield* givenUpSoon(lookAt(world, { ...hanging.resource, status }))
    assert.deepInclude(anew.observation, { reason: "NotAnswering", differences: [] })
    assert.isAbove(Date.parse(anew.resource.status?.unansweredSince ?? ""), Date.parse(tenMinutesAgo))
    yield* run(world, hanging.resource, (target, current) =>
      Effect.flatMap(givenUpSoon(look(target, current)), (observation) =>
        target.converge(current, observation)
      )
    )
    yield* settle(world, hanging.resource)
    assert.notInclude(pidOf(world, made), pid)
  }).pipe(endedSoon))

test("a cache that a script keeps busy is not ready, says why, and is ready again when its time is over", (world) =>
  Effect.gen(function* () {
    const made = makeCache(world)
    yield* settle(world, made)
    const connected = yield* client(world, made)
    yield* Effect.promise(() => connected.set("kept", "yes"))
    const script = "redis.call('set', 'kept', 'no') while true do end"
    yield* Effect.forkChild(Effect.ignore(Effect.tryPromise(() => connected.eval(script))))
    const busy = yield* eventually(
      "it is busy",
      lookAt(world, made, 31_000),
      ({ observation }) => observation.reason === "ScriptBusy"
    )
    assert.deepInclude(busy.observation, { ready: false, differences: [] })
    assert.match(busy.observation.message ?? "", /ended after 30 s.*append-only file/)
    const [pid] = pidOf(world, made)
    // A step before the script's time is over puts right what is on disk, and lets the server be.
    setPassword(world, made, `second-${uuid()}`)
    yield* run(world, made, (target, current) => target.converge(current, { _tag: "Absent" }))
    assert.deepStrictEqual(pidOf(world, made), [pid])
    const due = yield* lookAt(world, busy.resource)
    assert.deepStrictEqual(due.fields, ["/process"])
    yield* settle(world, due.resource)
    const renewed = yield* client(world, made)
    assert.strictEqual(yield* Effect.promise(() => renewed.get("kept")), "yes")
    assert.notInclude(pidOf(world, made), pid)
  }))

const servedSerial = (port: number, ca: string) =>
  Effect.callback<string>((resume) => {
    const socket = tls.connect({ host: "127.0.0.1", port, ca }, () => {
      resume(Effect.succeed(socket.getPeerCertificate().serialNumber))
      socket.end()
    })
    socket.once("error", (error) => resume(Effect.die(error)))
  })
