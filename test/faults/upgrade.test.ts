/** The former commit's control plane and this one on one store: what a rolling upgrade is, for as long as both run. */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { processesNaming } from "#test/setup/processes.ts"
import { until } from "#test/setup/wait.ts"
import { makePlane, type Plane, planesWorld } from "./planes.ts"

const root = path.resolve(import.meta.dirname, "../..")
/** Which commit is "former". A clone without history has none. */
const ref = process.env["SVC_UPGRADE_FROM"] ?? "HEAD~1"
const git = (...args: ReadonlyArray<string>) =>
  execFileSync("git", args, { cwd: root, maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "ignore"] })
const former = (() => {
  try {
    return git("rev-parse", "--verify", `${ref}^{commit}`).toString().trim()
  } catch {
    return undefined
  }
})()

/** The program of a commit, with the packages of this one. */
const unpack = (commit: string, folder: string): string => {
  fs.mkdirSync(folder)
  const archive = git(
    "archive",
    "--format=tar",
    commit,
    "package.json",
    "schemas",
    "reconcilers",
    "src",
    "examples"
  )
  execFileSync("tar", ["-x", "-C", folder], { input: archive })
  fs.symlinkSync(path.join(root, "node_modules"), path.join(folder, "node_modules"))
  return path.join(folder, "src/cli/svc.mjs")
}

interface Item {
  readonly uid: string
  readonly kind: string
  readonly name: string
  readonly phase: string
  readonly generation: number
  readonly observedGeneration: number
}
const allReady = (plane: Plane, count: number) =>
  until("everything is ready", async () => {
    const { body } = await plane.call("GET", "/v1/orgs/main/resources?limit=100")
    const items = body.items as ReadonlyArray<Item>
    const missing = items.filter((one) => one.phase !== "ready" || one.observedGeneration !== one.generation)
    if (items.length === count && missing.length === 0) return items
    throw new Error(`${items.length} of ${count}, not ready: ${JSON.stringify(missing.slice(0, 3))}`)
  })

it.live.skipIf(former === undefined)(
  "the former release and this one share a store, each sees what the other wrote, and servers go on",
  () =>
    Effect.gen(function* () {
      const { base, store, planes } = yield* planesWorld
      yield* Effect.promise(async () => {
        const old = await makePlane(base, store.url, {}, unpack(former!, path.join(base, "former")))
        const present = await makePlane(base, store.url)
        planes.push(old, present)
        await old.start()
        const projects = "/v1/orgs/main/projects"
        assert.strictEqual((await old.call("POST", projects, { name: "Roll", slug: "roll" })).status, 201)
        const cache = { name: "hot", sku: "cache-n1", region: "local" }
        assert.strictEqual((await old.call("POST", `${projects}/roll/caches`, cache)).status, 201)
        assert.strictEqual((await old.call("POST", `${projects}/roll/queues`, { name: "jobs" })).status, 201)
        const before = await allReady(old, 5)
        const server = before.find(({ kind }) => kind === "Cache")!.uid
        const pids = processesNaming(server).map(({ pid }) => pid)
        assert.lengthOf(pids, 1)

        // Its migrations run while the former one works.
        await present.start()
        const cron = { name: "tick", schedule: "0 3 * * *", target: { kind: "queue", queue: "jobs" } }
        assert.strictEqual((await old.call("POST", `${projects}/roll/crons`, cron)).status, 201)
        assert.strictEqual(
          (await present.call("POST", `${projects}/roll/queues`, { name: "more" })).status,
          201
        )
        // Releases before it was a resource keep a budget beside the project.
        const cap = async (monthlyCapUsd: number) =>
          assert.strictEqual(
            (await old.call("PUT", `${projects}/roll/budget`, { monthlyCapUsd })).status,
            200
          )
        await cap(5)
        for (const plane of [old, present]) await allReady(plane, 8)
        await cap(6)
        await allReady(present, 8)
        const exported = await present.call("GET", "/v1/orgs/main/manifest")
        assert.strictEqual(exported.status, 200)
        const plan = await present.call("POST", "/v1/orgs/main/manifest/plan", exported.body)
        assert.include(plan.body.summary, { create: 0, update: 0, replace: 0, delete: 0 })

        await old.kill("SIGTERM")
        const [queue] = (await present.call("GET", `${projects}/roll/queues`)).body
        const changed = await present.call("PATCH", `${projects}/roll/queues/${queue.id}`, { paused: true })
        assert.strictEqual(changed.status, 200)
        await allReady(present, 8)
        assert.deepStrictEqual(
          processesNaming(server).map(({ pid }) => pid),
          pids
        )
      })
    }).pipe(Effect.scoped)
)
