/** Faults with real processes: the control plane as its own program, killed without warning. */
import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { createClient } from "redis"
import { processesNaming } from "#test/setup/caches.ts"
import { freePort, startPostgres } from "#test/setup/postgres.ts"

const program = fileURLToPath(new URL("../../src/cli/svc.mjs", import.meta.url))
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))
const until = async <A>(
  label: string,
  look: () => Promise<A | undefined | false>,
  seconds = 90
): Promise<A> => {
  const deadline = Date.now() + seconds * 1000
  let trouble: unknown
  while (Date.now() < deadline) {
    try {
      const value = await look()
      if (value !== undefined && value !== false) return value
    } catch (error) {
      trouble = error
    }
    await sleep(50)
  }
  throw new Error(`never: ${label} (${String(trouble)})`)
}

interface Plane {
  readonly start: () => Promise<void>
  readonly kill: (signal: NodeJS.Signals) => Promise<void>
  // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
  readonly call: (method: string, target: string, body?: unknown) => Promise<{ status: number; body: any }>
  readonly log: () => string
}

/** Several programs may share a folder and a store; each has ports of its own. */
const makePlane = async (
  base: string,
  databaseUrl: string,
  more: Record<string, string> = {}
): Promise<Plane> => {
  const [port, metricsPort] = await Promise.all([freePort(), freePort()])
  let child: ChildProcess | undefined
  let log = ""
  const token = () =>
    (
      JSON.parse(fs.readFileSync(path.join(base, "config", "svc", "credentials.json"), "utf8")) as {
        session: string
      }
    ).session
  return {
    start: async () => {
      child = spawn(process.execPath, [program, "up", "--no-apply"], {
        cwd: base,
        env: {
          ...process.env,
          SVC_DATA_DIR: path.join(base, "data"),
          XDG_CONFIG_HOME: path.join(base, "config"),
          SVC_DATABASE_URL: databaseUrl,
          SVC_PORT: String(port),
          SVC_METRICS_PORT: String(metricsPort),
          SVC_RATE_LIMIT: "1000000",
          ...more
        },
        stdio: ["ignore", "pipe", "pipe"]
      })
      for (const stream of [child.stdout, child.stderr])
        stream?.on("data", (chunk: Buffer) => (log += chunk.toString()))
      await until("serving", async () => {
        const response = await fetch(`http://127.0.0.1:${port}/v1/health`, {
          signal: AbortSignal.timeout(5_000)
        })
        await response.text()
        return response.ok
      })
      await until("signed in", async () => token() !== "")
    },
    kill: (signal) =>
      new Promise((resolve) => {
        if (child === undefined || child.exitCode !== null || child.signalCode !== null) return resolve()
        child.once("exit", () => resolve())
        child.kill(signal)
      }),
    call: async (method, target, body) => {
      const response = await fetch(`http://127.0.0.1:${port}${target}`, {
        method,
        headers: { authorization: `Bearer ${token()}`, "content-type": "application/json" },
        ...(body === undefined ? {} : { body: JSON.stringify(body) })
      })
      const text = await response.text()
      return {
        status: response.status,
        body: text.startsWith("{") || text.startsWith("[") ? JSON.parse(text) : text
      }
    },
    log: () => log
  }
}

const world = Effect.acquireRelease(
  Effect.promise(async () => {
    const base = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
    // The servers' user walks through it.
    fs.chmodSync(base, 0o755)
    return { base, store: await startPostgres({ durable: true }), planes: [] as Array<Plane> }
  }),
  ({ base, store, planes }) =>
    Effect.promise(async () => {
      await Promise.all(planes.map((plane) => plane.kill("SIGKILL")))
      for (const { pid } of processesNaming(base)) {
        try {
          process.kill(pid, "SIGKILL")
        } catch {
          // Children of a server that was just killed end by themselves.
        }
      }
      store.stop()
      fs.rmSync(base, { recursive: true, force: true, maxRetries: 10 })
    })
)

const names = (count: number) =>
  Array.from({ length: count }, (_, i) => `cache-${String(i).padStart(2, "0")}`)
const everything = async (plane: Plane) => {
  const { body } = await plane.call("GET", "/v1/orgs/main/resources?limit=100")
  return body.items as ReadonlyArray<{
    uid: string
    kind: string
    phase: string
    observedGeneration: number
    generation: number
  }>
}
const allReady = (plane: Plane, count: number) =>
  until("everything is ready", async () => {
    const items = await everything(plane)
    return (
      items.length === count &&
      items.every((one) => one.phase === "ready" && one.observedGeneration === one.generation)
    )
  })

it.live(
  "a control plane that is killed at random moments of an apply loses nothing, doubles nothing and converges",
  () =>
    Effect.gen(function* () {
      const { base, store, planes } = yield* world
      yield* Effect.promise(async () => {
        const plane = await makePlane(base, store.url)
        planes.push(plane)
        await plane.start()
        const caches = names(26).map((name) => ({ name, region: "local", persistence: "none" }))
        const project = { name: "Crash", slug: "crash", runtimeClass: "always-on", env: { A: "1" }, caches }
        const applied = await plane.call("POST", "/v1/orgs/main/manifest/apply", {
          manifest: { version: 1, organization: "main", projects: [project] }
        })
        assert.strictEqual(applied.status, 202)
        for (let round = 0; round < 6; round++) {
          await sleep(Math.random() * 400)
          await plane.kill("SIGKILL")
          await plane.start()
        }
        await allReady(plane, 30)
        const folders = fs.readdirSync(path.join(base, "data", "caches"))
        const uids = (await everything(plane)).filter(({ kind }) => kind === "Cache").map(({ uid }) => uid)
        assert.sameMembers(folders, uids)
        for (const uid of uids) {
          assert.strictEqual(processesNaming(uid).length, 1, `one server for ${uid}`)
        }
        assert.strictEqual(fs.readdirSync(path.join(base, "data", "ports")).length, 26)
      })
    }).pipe(Effect.scoped),
  240_000
)

it.live(
  "servers outlive the control plane, and a server that is killed comes back with what it had committed",
  () =>
    Effect.gen(function* () {
      const { base, store, planes } = yield* world
      yield* Effect.promise(async () => {
        const plane = await makePlane(base, store.url)
        planes.push(plane)
        await plane.start()
        await plane.call("POST", "/v1/orgs/main/projects", { name: "Keep", slug: "keep" })
        const cache = await plane.call("POST", "/v1/orgs/main/projects/keep/caches", {
          name: "one",
          sku: "cache-n1",
          region: "local"
        })
        const database = await plane.call("POST", "/v1/orgs/main/projects/keep/database", {})
        const ca = String((await plane.call("GET", "/v1/ca.pem")).body)
        const redis = async <A>(body: (client: ReturnType<typeof createClient>) => Promise<A>) => {
          const client = createClient({
            url: cache.body.connectionString,
            socket: { tls: true, ca, reconnectStrategy: false }
          })
          client.on("error", () => undefined)
          try {
            await client.connect()
            return await body(client as ReturnType<typeof createClient>)
          } finally {
            if (client.isOpen) client.destroy()
          }
        }
        const query = async (statement: string) => {
          const sql = postgres(String(database.body.connectionString).replace(/\?.*/, ""), {
            ssl: { ca },
            max: 1,
            connect_timeout: 5,
            onnotice: () => {}
          })
          try {
            return await sql.unsafe(statement)
          } finally {
            await sql.end({ timeout: 1 })
          }
        }
        await redis((client) => client.set("kept", "yes"))
        await query("create table ledger (n int); insert into ledger values (1), (2)")
        // Append-only files are made durable each second.
        await sleep(1_500)

        await plane.kill("SIGKILL")
        assert.strictEqual(await redis((client) => client.get("kept")), "yes")
        assert.strictEqual((await query("select * from ledger")).length, 2)
        await plane.start()
        await allReady(plane, 5)

        const servers = (await everything(plane)).filter(
          ({ kind }) => kind === "Cache" || kind === "Database"
        )
        for (const { uid } of servers)
          for (const { pid } of processesNaming(uid)) process.kill(pid, "SIGKILL")
        for (const { uid } of servers)
          assert.strictEqual((await plane.call("POST", `/v1/orgs/main/resources/${uid}/retry`)).status, 202)
        await until("the cache is back", async () => (await redis((client) => client.get("kept"))) === "yes")
        await until("the database is back", async () => (await query("select * from ledger")).length === 2)
      })
    }).pipe(Effect.scoped),
  240_000
)
