/**
 * GET and POST against a raw `node:http` and postgres.js server that runs the same statements, on the same Postgres,
 * in the same run, each server in a process of its own. Then plans of 1,000 and 10,000 resources.
 */
import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as http from "node:http"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as Result from "effect/Result"
import postgres from "postgres"
import { parseManifest } from "#src/manifest/parse.ts"
import { makePlan } from "#src/manifest/plan.ts"
import { freePort } from "#test/setup/postgres.ts"
import { cpuOf } from "./cpu.ts"
import type { Figure } from "./figures.ts"
import { seed } from "./noop.ts"

const file = (name: string) => fileURLToPath(new URL(name, import.meta.url))
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

export interface Load {
  readonly rate: number
  readonly p99: number
}

/** Closed loop: 16 connections, each asks again when it was answered. */
export const load = async (
  port: number,
  request: (n: number) => { method: string; path: string; body?: string },
  headers: Record<string, string>,
  seconds: number
): Promise<Load> => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 16 })
  const times: Array<number> = []
  let n = 0
  const one = () =>
    new Promise<void>((resolve, reject) => {
      const { method, path: target, body } = request(n++)
      const startedAt = performance.now()
      const sent = http.request(
        {
          host: "127.0.0.1",
          port,
          agent,
          method,
          path: target,
          headers: {
            ...headers,
            ...(body === undefined
              ? {}
              : { "content-type": "application/json", "content-length": Buffer.byteLength(body) })
          }
        },
        (response) => {
          response.resume()
          response.once("end", () => {
            if ((response.statusCode ?? 500) >= 400)
              return reject(new Error(`status ${response.statusCode} for ${method} ${target}`))
            times.push(performance.now() - startedAt)
            resolve()
          })
        }
      )
      sent.once("error", reject)
      sent.end(body)
    })
  const run = async (until: number) => {
    while (performance.now() < until) await one()
  }
  const lanes = async (ms: number) => {
    const until = performance.now() + ms
    await Promise.all(Array.from({ length: 16 }, () => run(until)))
  }
  await lanes(1_500)
  times.length = 0
  const startedAt = performance.now()
  await lanes(seconds * 1000)
  const elapsed = (performance.now() - startedAt) / 1000
  agent.destroy()
  times.sort((a, b) => a - b)
  return { rate: times.length / elapsed, p99: times[Math.floor(times.length * 0.99)] ?? 0 }
}

export const serving = async (port: number, target: string, child: ChildProcess) => {
  for (let i = 0; i < 400; i++) {
    if (child.exitCode !== null) throw new Error(`a server ended with ${child.exitCode}`)
    const ok = await fetch(`http://127.0.0.1:${port}${target}`).then(
      (response) => response.status < 500,
      () => false
    )
    if (ok) return
    await sleep(25)
  }
  throw new Error("a server does not answer")
}

export const ended = (child: ChildProcess) =>
  new Promise<void>((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve()
    child.once("exit", () => resolve())
    child.kill("SIGTERM")
  })

const rssMegabytes = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

export const api = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const base = fs.mkdtempSync(path.join(os.tmpdir(), "svc-bench-"))
  fs.chmodSync(base, 0o755)
  const [port, metricsPort, rawPort] = await Promise.all([freePort(), freePort(), freePort()])
  const env = {
    ...process.env,
    SVC_DATA_DIR: path.join(base, "data"),
    XDG_CONFIG_HOME: path.join(base, "config"),
    SVC_DATABASE_URL: url,
    SVC_PORT: String(port),
    SVC_METRICS_PORT: String(metricsPort),
    SVC_ROLES: "api,engine",
    SVC_RATE_LIMIT: "100000000"
  }
  const startedAt = performance.now()
  let plane = spawn(process.execPath, [file("../src/cli/svc.mjs"), "up", "--no-apply"], {
    cwd: base,
    env,
    stdio: ["ignore", "ignore", "inherit"]
  })
  await serving(port, "/v1/health", plane)
  const firstStart = performance.now() - startedAt
  await sleep(500)
  const credentials = JSON.parse(
    fs.readFileSync(path.join(base, "config", "svc", "credentials.json"), "utf8")
  ) as { apiKey: string }
  const headers = { authorization: `Bearer ${credentials.apiKey}` }
  const call = (method: string, target: string, body: unknown) =>
    fetch(`http://127.0.0.1:${port}${target}`, {
      method,
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify(body)
    })
  for (let i = 0; i < 20; i++)
    await (await call("POST", "/v1/orgs/main/projects", { name: `P${i}`, slug: `project-${i}` })).text()
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  // Other tenants' resources, so that both servers work on a store of a usual size.
  for (let i = 0; i < 20; i++) await seed(sql, 500)
  await sql`analyze`
  await sleep(1_000)

  const raw = spawn(process.execPath, [file("./raw-server.ts")], {
    env: { ...env, RAW_PORT: String(rawPort) },
    stdio: "inherit"
  })
  await serving(rawPort, "/health", raw)
  const get = () => ({ method: "GET", path: "/v1/orgs/main/projects" })
  const post = (prefix: string) => (n: number) => ({
    method: "POST",
    path: "/v1/orgs/main/projects/project-1/environments",
    body: JSON.stringify({ slug: `${prefix}${n}` })
  })
  const [rawGet, apiGet] = [await load(rawPort, get, headers, 4), await load(port, get, headers, 4)]
  const [rawPost, apiPost] = [
    await load(rawPort, post("r"), headers, 4),
    await load(port, post("a"), headers, 4)
  ]
  await ended(raw)
  await ended(plane)

  // Idle with 1,000 ready resources that are not due.
  await sql`delete from work where uid in (select uid from resource where kind = 'Environment')`
  await sql`delete from resource where kind = 'Environment' and name ~ '^[ar][0-9]+$'`
  const [org] = await sql`select id from organization where slug = 'main'`
  await sql`
    with made as (
      insert into resource (org_id, uid, kind, name, spec, status, phase, observed_generation, settled, managed_by)
      select ${org?.["id"]}, gen_random_uuid(), 'Project', 'idle-' || i, '{"name": "I", "runtimeClass": "always-on"}', '{}', 'ready', 1, true, 'api'
      from generate_series(1, 1000) i returning org_id, uid, kind
    )
    insert into work (org_id, uid, kind, due_at, rank) select org_id, uid, kind, now() + interval '1 hour' * random(), now() + interval '1 hour' from made`
  const again = performance.now()
  plane = spawn(process.execPath, [file("../src/cli/svc.mjs"), "up", "--no-apply"], {
    cwd: base,
    env,
    stdio: ["ignore", "ignore", "inherit"]
  })
  await serving(port, "/v1/health", plane)
  const secondStart = performance.now() - again
  await sleep(4_000)
  const before = cpuOf(plane.pid!)
  await sleep(20_000)
  const idleCpu = (cpuOf(plane.pid!) - before) / 20
  const idleRss = rssMegabytes(plane.pid!)
  await ended(plane)
  await sql.end()
  fs.rmSync(base, { recursive: true, force: true })

  return [
    {
      name: "GET, 20 projects",
      value: apiGet.rate,
      unit: "/s",
      note: `p99 ${apiGet.p99.toFixed(1)} ms; raw ${Math.round(rawGet.rate)}/s, p99 ${rawGet.p99.toFixed(1)} ms`
    },
    { name: "GET / raw", value: apiGet.rate / rawGet.rate, unit: "x", aim: ">= 0.8" },
    {
      name: "POST, an environment",
      value: apiPost.rate,
      unit: "/s",
      note: `p99 ${apiPost.p99.toFixed(1)} ms; raw ${Math.round(rawPost.rate)}/s, p99 ${rawPost.p99.toFixed(1)} ms`
    },
    { name: "POST / raw", value: apiPost.rate / rawPost.rate, unit: "x", aim: ">= 0.8" },
    { name: "first start, migrations included", value: firstStart / 1000, unit: "s" },
    { name: "start", value: secondStart / 1000, unit: "s", aim: "< 1.5" },
    { name: "idle CPU with 1,000 ready resources", value: idleCpu * 100, unit: "% core", aim: "< 1" },
    { name: "idle RSS with 1,000 ready resources", value: idleRss, unit: "MB", aim: "< 250" }
  ]
}

/** Planning: reading the document and finding the differences, without the store. */
export const plan = async (): Promise<ReadonlyArray<Figure>> => {
  const figures: Array<Figure> = []
  for (const count of [1_000, 10_000]) {
    const caches = Array.from({ length: count }, (_, i) => ({
      name: `cache-${i}`,
      region: "local",
      sku: "cache-n1"
    }))
    const source = JSON.stringify({
      version: 1,
      organization: "main",
      projects: [{ name: "P", slug: "project", runtimeClass: "always-on", caches }]
    })
    const options = {
      prune: true,
      confirm: [],
      fingerprint: (value: string) => value,
      regions: ["local"]
    } as const
    const read = () => {
      const parsed = parseManifest(source)
      if (Result.isFailure(parsed)) throw new Error(JSON.stringify(parsed.failure))
      return parsed.success.manifest
    }
    const created = makePlan(read(), [], options)
    const current = created.steps.map((step) => ({
      ...step,
      project: "project",
      generation: 1,
      protected: false,
      deleting: false,
      spec: step.name.endsWith("7") ? { ...step.spec, sku: "cache-s1" } : step.spec
    }))
    globalThis.gc?.()
    const memory = process.memoryUsage().heapUsed
    const startedAt = performance.now()
    const made = makePlan(read(), current, options)
    const seconds = (performance.now() - startedAt) / 1000
    const grown = (process.memoryUsage().heapUsed - memory) / 1e6
    if (made.changes.length < count) throw new Error("the plan is incomplete")
    figures.push({
      name: `plan of ${count} resources`,
      value: seconds,
      unit: "s",
      ...(count === 10_000 ? { aim: "< 2" } : {}),
      note: `${grown.toFixed(0)} MB`
    })
  }
  return figures
}
