/**
 * What the platform adds to a deployment: builds against `podman build` of the same steps with the same processor and
 * memory, in turns; the first answer of an app that is stopped or paused against `podman run` and `podman unpause`; and
 * the p99 of a database of the machine while either builds. The base image is made of this machine's own Node and npm.
 *
 * A build of ours has every file unpacked by the engine and every step run in one container; `podman build` makes a layer
 * of each instruction. Neither reaches a registry or the network: packages are folders of the source.
 */
import { spawn, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as http from "node:http"
import * as path from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { baseImage } from "#test/builds/world.ts"
import type { Engine } from "#test/setup/containers.ts"
import { until } from "#test/setup/wait.ts"
import { deployPlane } from "./deploy-plane.ts"
import { type Figure, median, spread } from "./figures.ts"

const rounds = 5
/** What builds have (`BuildOptions`), and what an app has unless it is told otherwise. */
const buildLimits = ["--cpu-period=100000", "--cpu-quota=100000", "--memory=2g"]
const appLimits = ["--cpus=0.5", "--memory=512m", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]

const locked = (name: string) =>
  JSON.stringify({
    name,
    lockfileVersion: 3,
    packages: {
      "": { name, dependencies: { lib: "file:./lib" } },
      lib: { version: "1.0.0" },
      "node_modules/lib": { resolved: "lib", link: true }
    }
  })

/** Two hundred files, a package to install, and a build that takes a second or two of a processor. */
const filesOf = (name: string, word: string): Readonly<Record<string, string>> => ({
  "package.json": JSON.stringify({
    name,
    dependencies: { lib: "file:./lib" },
    scripts: { build: "node build.js", start: "node server.js" }
  }),
  "package-lock.json": locked(name),
  "lib/package.json": JSON.stringify({ name: "lib", version: "1.0.0", main: "index.js" }),
  "lib/index.js": "module.exports = 'lib'",
  "svc.yaml": "build: { start: exec node server.js }\n",
  "build.js": `require("fs").writeFileSync("built.txt", ${JSON.stringify(word)} + require("lib"))
    require("crypto").pbkdf2Sync("a", "b", 1_500_000, 64, "sha512")`,
  "server.js": `const text = require("fs").readFileSync("built.txt", "utf8")
    require("http").createServer((_, answer) => answer.end(text)).listen(process.env.PORT ?? 8080)`,
  ...Object.fromEntries(
    Array.from({ length: 200 }, (_, n) => [`src/part-${n}.js`, `module.exports = "${String(n).repeat(500)}"`])
  )
})

const dockerfile = `FROM ${baseImage}
WORKDIR /app
COPY package.json package-lock.json /app/
COPY lib /app/lib
RUN npm ci --no-audit --no-fund
COPY . /app
RUN npm run build
USER 1000:1000
CMD ["node", "server.js"]
`

const seconds = async (act: () => Promise<unknown>): Promise<number> => {
  const began = performance.now()
  await act()
  return (performance.now() - began) / 1_000
}

/** The folder that `podman build` is given, with these files. */
const contextOf = (engine: Engine, files: Readonly<Record<string, string>>) => {
  const folder = path.join(engine.folder, "context")
  fs.rmSync(folder, { recursive: true, force: true })
  for (const [name, text] of Object.entries({ ...files, Dockerfile: dockerfile })) {
    const file = path.join(folder, name)
    fs.mkdirSync(path.dirname(file), { recursive: true })
    fs.writeFileSync(file, text)
  }
  return folder
}

const answers = (url: string) =>
  new Promise<boolean>((resolve) =>
    http
      .get(url, { agent: false }, (response) => {
        response.resume()
        response.once("end", () => resolve(response.statusCode === 200))
      })
      .once("error", () => resolve(false))
  )
const firstAnswer = async (url: string) => {
  while (!(await answers(url))) await pause(10)
}

/** Milliseconds within which 99 of 100 selects were answered while something ran, by two connections that ask without end. */
const p99During = async (url: string, folder: string, act: () => Promise<unknown>): Promise<number> => {
  const log = path.join(folder, `select-${Date.now()}`)
  const asking = spawn("pgbench", ["-n", "-S", "-c", "2", "-T", "600", "-l", `--log-prefix=${log}`, url], {
    stdio: "ignore"
  })
  const gone = new Promise((resolve) => asking.once("exit", resolve))
  await pause(500)
  const from = Date.now()
  await act()
  const to = Date.now()
  asking.kill("SIGTERM")
  await gone
  const times = fs
    .readdirSync(folder)
    .filter((name) => path.join(folder, name).startsWith(log))
    .flatMap((name) => fs.readFileSync(path.join(folder, name), "utf8").split("\n"))
    .map((line) => line.split(" ").map(Number))
    .flatMap(([, , micros = 0, , at = 0, fraction = 0]) => {
      const ended = at * 1_000 + fraction / 1_000
      return ended >= from && ended <= to ? [micros / 1_000] : []
    })
    .sort((a, b) => a - b)
  return times[Math.floor(times.length * 0.99)] ?? Number.NaN
}

export const deploy = async (url: string): Promise<ReadonlyArray<Figure>> => {
  if (spawnSync("pgbench", ["--version"]).error !== undefined) {
    console.log("  skipped: apt-get install -y --no-install-recommends postgresql-contrib")
    return []
  }
  return Effect.runPromise(Effect.scoped(measured(url)))
}

const measured = Effect.fnUntraced(function* (url: string) {
  const plane = yield* deployPlane(url)
  const sql = yield* Effect.acquireRelease(
    Effect.sync(() => postgres(url, { max: 1, onnotice: () => {} })),
    (open) => Effect.promise(() => open.end())
  )
  return yield* Effect.promise(() => figuresOf(plane, sql, url))
})

type DeployPlane = Effect.Success<ReturnType<typeof deployPlane>>

const figuresOf = async (
  plane: DeployPlane,
  sql: postgres.Sql,
  url: string
): Promise<ReadonlyArray<Figure>> => {
  const { engine, build, serves, ask } = plane
  const { podman } = engine
  const host = await plane.makeProject()
  const times = new Map<string, Array<number>>()
  const note = (name: string, value: number) => times.set(name, [...(times.get(name) ?? []), value])

  const podmanBuild = async (files: Readonly<Record<string, string>>, ...more: ReadonlyArray<string>) => {
    const context = contextOf(engine, files)
    const begun = performance.now()
    podman("build", "-q", "--layers", ...more, ...buildLimits, "-t", "localhost/bench/peer:1", context)
    return (performance.now() - begun) / 1_000
  }
  /** The two change places with every round. */
  const inTurns = async (round: number, ours: () => Promise<unknown>, peer: () => Promise<unknown>) => {
    for (const act of round % 2 === 0 ? [ours, peer] : [peer, ours]) await act()
  }
  const timed = (name: string, files: Readonly<Record<string, string>>) => async () => {
    let id = ""
    note(
      name,
      await seconds(async () => {
        id = await build(files)
      })
    )
    await serves(id)
  }

  for (let round = 0; round < rounds; round++) {
    // Another lock file and another name: nothing of an earlier round is of use.
    const cold = filesOf(`app-${round}`, "one")
    await inTurns(round, timed("cold", cold), async () =>
      note("cold, podman", await podmanBuild(cold, "--no-cache"))
    )
    // With its layers kept, for the two that follow.
    await podmanBuild(cold)
    const changed = { ...cold, ...filesOf(`app-${round}`, `two of ${round} `) }
    await inTurns(round, timed("changed", changed), async () =>
      note("changed, podman", await podmanBuild(changed))
    )
    await inTurns(round, timed("unchanged", changed), async () =>
      note("unchanged, podman", await podmanBuild(changed))
    )
  }

  const [app] = await sql<[{ uid: string }]>`select uid::text from app limit 1`
  /** As if nobody had asked for anything for two hours. */
  const asleep = (power: string) =>
    until(`it is ${power}`, async () => {
      await sql`update edge_request_minute set minute = minute - interval '2 hours'`
      await sql`update app set active_at = now() - interval '2 hours' where uid = ${app.uid}`
      await sql`update work set due_at = now() where uid = ${app.uid}`
      const { power: now } = await plane.call("GET", `${plane.project}/app`)
      return now === power
    })
  const peer = "bench-peer"
  for (let round = 0; round < rounds; round++) {
    await plane.call("PATCH", `${plane.project}/app`, { idle: { stopSeconds: 60 } })
    await asleep("stopped")
    const started = async () => {
      podman("run", "-d", "--name", peer, ...appLimits, "localhost/bench/peer:1")
      const address = podman("inspect", "--format", "{{.NetworkSettings.IPAddress}}", peer)
      await firstAnswer(`http://${address}:8080/`)
    }
    await inTurns(
      round,
      async () => note("start", await seconds(() => ask(host))),
      async () => note("start, podman", await seconds(started))
    )
    await plane.call("PATCH", `${plane.project}/app`, { idle: { stopSeconds: 604_800 } })
    await asleep("paused")
    podman("pause", peer)
    const address = podman("inspect", "--format", "{{.NetworkSettings.IPAddress}}", peer)
    await inTurns(
      round,
      async () => note("resume", await seconds(() => ask(host))),
      async () =>
        note(
          "resume, podman",
          await seconds(async () => {
            podman("unpause", peer)
            await firstAnswer(`http://${address}:8080/`)
          })
        )
    )
    podman("rm", "-f", "-t", "0", peer)
  }

  spawnSync("pgbench", ["-i", "-q", "-s", "10", url], { stdio: "ignore" })
  const logs = path.join(engine.folder, "selects")
  fs.mkdirSync(logs)
  for (let round = 0; round < rounds; round++) {
    note("p99 at rest", await p99During(url, logs, () => pause(4_000)))
    const files = filesOf(`busy-${round}`, "three")
    await inTurns(
      round,
      async () => note("p99", await p99During(url, logs, () => timed("busy", files)())),
      async () => note("p99, podman", await p99During(url, logs, () => podmanBuild(files, "--no-cache")))
    )
  }

  const of = (name: string) => times.get(name) ?? []
  const pair = (title: string, name: string, unit: string, aim?: string): ReadonlyArray<Figure> => {
    const ratios = of(name).map((value, round) => value / (of(`${name}, podman`)[round] ?? Number.NaN))
    return [
      { name: title, value: median(of(name)), unit, note: spread(of(name)) },
      {
        name: `${title}, podman`,
        value: median(of(`${name}, podman`)),
        unit,
        note: spread(of(`${name}, podman`))
      },
      {
        name: `${title}, to podman's`,
        value: median(ratios),
        unit: "x",
        note: spread(ratios),
        ...(aim === undefined ? {} : { aim })
      }
    ]
  }
  return [
    ...pair("cold build", "cold", "s", "<= 1.3"),
    ...pair("build of a changed source", "changed", "s", "<= 1.5"),
    ...pair("build of the same source", "unchanged", "s"),
    ...pair("first answer of a stopped app", "start", "s", "<= 1"),
    ...pair("first answer of a paused app", "resume", "s"),
    {
      name: "p99 of selects at rest",
      value: median(of("p99 at rest")),
      unit: "ms",
      note: spread(of("p99 at rest"))
    },
    ...pair("p99 of selects during a build", "p99", "ms")
  ]
}
