/** Builds that try to get out of their containers, and control planes and engines that are killed while they build. */
import * as fs from "node:fs"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { answerOf, makeShop, over, readDeployment, ready } from "#test/apps/world.ts"
import type { Round } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { Containers } from "#test/executions/world.ts"
import { makePlane, planesOnSharedServer } from "#test/faults/planes.ts"
import { containerEngine } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { saying } from "#test/setup/saying.ts"
import { eventually, sleep, until } from "#test/setup/wait.ts"
import { digestOf, file, tar } from "./archives.ts"
import { baseImage, buildPlane, deploySource, logOf, makeBase, nothingIsLeft } from "./world.ts"

const reaches = (host: string, port: number) =>
  Effect.callback<boolean>((resume) => {
    const socket = net.connect({ host, port, timeout: 3_000 })
    socket.once("data", () => resume(Effect.succeed(true)))
    for (const event of ["error", "timeout"]) socket.once(event, () => resume(Effect.succeed(false)))
    return Effect.sync(() => socket.destroy())
  })

const buildOf = (build: string, more: object = {}) =>
  file("package.json", JSON.stringify({ scripts: { build, start: "node s.js" }, ...more }))
const app = file("s.js", `require("http").createServer((_, a) => a.end("up")).listen(process.env.PORT)`)

export const hostileBuild = ({ seed }: Round) =>
  Effect.gen(function* () {
    const { call } = yield* Plane
    const { podman } = yield* Containers
    const { path: shop, host } = yield* makeShop(`hostile-${seed}`)
    const canary = `canary-${seed}-4711`
    const set = yield* call("PUT", `${shop}/env?environment=production`, {
      body: { vars: [{ key: "CANARY", value: canary }] }
    })
    assert.strictEqual(set.status, 200, set.text)
    const port = yield* saying("reached", "0.0.0.0")
    const addresses = Object.values(os.networkInterfaces()).flatMap((all = []) =>
      all.flatMap(({ address, family }) => (family === "IPv4" ? [address] : []))
    )
    for (const address of addresses) assert.isTrue(yield* reaches(address, port), address)
    const secret = path.join(os.tmpdir(), `svc-host-secret-${seed}`)
    fs.writeFileSync(secret, canary)
    yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(secret, { force: true })))
    const probe = `const net = require("net"), fs = require("fs")
          const gateway = fs.readFileSync("/proc/net/route", "utf8").split("\\n").map((l) => l.split("\\t"))
            .filter((l) => l[1] === "00000000").map((l) => l[2].match(/../g).reverse().map((h) => parseInt(h, 16)).join("."))
          const places = [...${JSON.stringify(addresses)}, ...gateway].map((host) => [host, ${port}]).concat([["169.254.169.254", 80]])
          let left = places.length
          for (const [host, port] of places) {
            const socket = net.connect({ host, port, timeout: 3000 })
            let over = false
            const end = (how) => { if (over) return; over = true; console.log("probe", host, how); socket.destroy(); if (--left === 0) process.exit(0) }
            socket.once("data", () => end("reached")); socket.once("error", () => end("no")); socket.once("timeout", () => end("no"))
          }
          console.log("environment", JSON.stringify(process.env))
          for (const place of ["/proc/1/environ", "${secret}", "/run/podman/podman.sock"]) try { console.log("read", fs.readFileSync(place, "utf8").length, place) } catch { console.log("not", place) }`
    const id = yield* deploySource(shop, buildOf("node probe.js"), file("probe.js", probe), app)
    yield* ready(shop, id)
    const log = yield* logOf(shop, id)
    assert.strictEqual(log.match(/probe .* no/g)?.length, addresses.length + 2, log)
    assert.notInclude(log, "reached")
    assert.include(log, `not ${secret}`)
    assert.notInclude(log, canary)
    const { imageDigest } = yield* readDeployment(shop, id)
    assert.notInclude(podman("image", "inspect", imageDigest.replace("sha256:", "")), canary)
    // What it leaves is looked for in its container, whatever it links to.
    const out = yield* over(
      shop,
      yield* deploySource(
        shop,
        buildOf(`ln -s ${path.dirname(secret)} dist`, { devDependencies: {} }),
        file("svc.yaml", `build: { output: dist/${path.basename(secret)} }`)
      )
    )
    assert.deepStrictEqual([out.state, out.errorCode], ["failed", "build_failed"])
    assert.strictEqual(yield* answerOf(host), "200 up")
    yield* nothingIsLeft
  }).pipe(Effect.provide(buildPlane({ memoryMb: 512 })))

/** `silentMs`: so short that a silent build is found out, so long that no other one is silent for it. */
const tight = buildPlane({
  memoryMb: 512,
  silentMs: 15_000,
  logBytes: 64 * 1024,
  printedBytes: 1024 * 1024,
  diskMb: 48,
  measureMs: 300
})

export const greedyBuilds = ({ seed }: Round) =>
  Effect.gen(function* () {
    const { path, host } = yield* makeShop(`greedy-${seed}`)
    yield* ready(path, yield* deploySource(path, file("index.html", "good")))
    const broken = (build: string) => deploySource(path, buildOf(build))
    const silent = yield* over(path, yield* broken("sleep 600"))
    assert.deepStrictEqual([silent.state, silent.errorCode], ["failed", "build_timed_out"])
    const greedy = yield* over(
      path,
      yield* broken(`node -e 'const a = []; for (;;) a.push(Buffer.alloc(1e7, 1))'`)
    )
    assert.deepStrictEqual([greedy.state, greedy.errorCode], ["failed", "build_failed"])
    const files = `i=0; while true; do head -c 8000000 /dev/zero > f$i; i=$((i+1)); sleep 0.1; done`
    assert.match((yield* over(path, yield* broken(files))).error, /wrote more than 48 MiB/)
    const one = yield* over(path, yield* broken("head -c 99000000 /dev/zero > one && echo all of it"))
    assert.strictEqual(one.state, "failed")
    const loud = yield* broken("while true; do echo 0123456789012345678901234567890123456789; done")
    assert.match((yield* over(path, loud)).error, /printed more than/)
    assert.isBelow((yield* logOf(path, loud)).length, 80_000)
    const many = `node -e 'const { spawn } = require("child_process"); let failed = 0, left = 600
          for (let i = 0; i < 600; i++) { const one = spawn("sleep", ["1"]); const end = () => { if (--left === 0) { console.log("refused " + failed); process.exit(4) } }
            one.once("error", () => { failed++; end() }).once("exit", end) }'`
    const forks = yield* broken(many)
    yield* over(path, forks)
    assert.match(yield* logOf(path, forks), /refused [1-9]/)
    assert.strictEqual(yield* answerOf(host), "200 good")
    yield* nothingIsLeft
  }).pipe(Effect.provide(tight))

export const buildOfKilledEngine = ({ seed }: Round) =>
  Effect.gen(function* () {
    const { kill, restart } = yield* Containers
    const { path: shop, host } = yield* makeShop(`engine-${seed}`)
    const id = yield* deploySource(shop, buildOf("echo begun; sleep 8; echo done"), app)
    yield* eventually("it runs", logOf(shop, id), (text) => text.includes("\nbegun"))
    yield* Effect.promise(() => kill())
    yield* Effect.promise(() => restart())
    yield* ready(shop, id)
    assert.strictEqual(yield* answerOf(host), "200 up")
    yield* nothingIsLeft
  }).pipe(Effect.provide(buildPlane({ memoryMb: 512 })))

export const buildOfKilledPlane = ({ seed }: Round) =>
  Effect.gen(function* () {
    const engine = yield* containerEngine
    const world = yield* planesOnSharedServer
    const random = new Seeded(seed)
    makeBase(engine)
    const content = yield* Effect.promise(() =>
      tar(buildOf("echo begun; sleep 2; echo done > done.txt"), file("seed", String(seed)), app)
    )
    yield* Effect.promise(async () => {
      const plane = await makePlane(world.base, world.store.url, {
        SVC_CONTAINER_SOCKET: engine.socket,
        SVC_BUILD_IMAGE: baseImage,
        SVC_BUILD_FREE_MB: "256",
        SVC_OUTBOUND_ALLOW: "127.0.0.0/8"
      })
      world.planes.push(plane)
      await plane.start()
      const shop = "/v1/orgs/main/projects/shop"
      const body = { name: "Shop", slug: "shop", runtimeClass: "always-on", region: "local" }
      await plane.call("POST", "/v1/orgs/main/projects", body)
      const sent = await plane.call("PUT", `${shop}/uploads/${digestOf(content)}`, content)
      assert.strictEqual(sent.status, 200)
      const made = await plane.call("POST", `${shop}/deployments`, { upload: digestOf(content) })
      assert.strictEqual(made.status, 202, JSON.stringify(made.body))
      for (let kills = 0; kills < 4; kills++) {
        await sleep(random.between(200, 3_200))
        await plane.crash()
        await plane.start()
      }
      const read = async () => (await plane.call("GET", `${shop}/deployments/${made.body.id}`)).body
      await until("it is ready", async () => (await read()).state === "ready", 240)
      const left = () =>
        engine
          .podman("ps", "-a", "--format", "{{.Names}}")
          .split("\n")
          .filter((name) => /-(build|image)$/.test(name))
      await until("nothing is left", async () => left().length === 0, 180)
    })
  })
