/**
 * GET of a list and POST against two peers that run the same statements, each server in a process of its own on the same
 * Postgres, in turns within one run. Once with the engine in a process of its own, once with it in the API's process.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { createHash, randomBytes, randomUUIDv7 } from "node:crypto"
import * as fs from "node:fs"
import { setTimeout } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import postgres from "postgres"
import { freePort } from "#test/setup/postgres.ts"
import { apiProcess, benchFolder, seedProjects } from "./api-process.ts"
import { cpuBelow, cpuOf, postmasterOf } from "./cpu.ts"
import { type Figure, median, spread } from "./figures.ts"
import { ended, type Load, load, serving } from "./load.ts"
import { busy, seed } from "./noop.ts"

const rounds = 7
const seconds = 1.5
const warmUpMs = 300

interface Server {
  readonly name: string
  readonly port: number
  readonly child: ChildProcess
}

const peer = async (name: string, program: string, url: string): Promise<Server> => {
  const port = await freePort()
  const child = spawn(process.execPath, [fileURLToPath(new URL(program, import.meta.url))], {
    env: { ...process.env, PEER_PORT: String(port), SVC_DATABASE_URL: url },
    stdio: ["ignore", "ignore", "inherit"]
  })
  await serving(port, "/health", child)
  return { name, port, child }
}

const list = () => ({ method: "GET", path: "/v1/orgs/main/projects" })
let made = 0
const create = () => ({
  method: "POST",
  path: "/v1/orgs/main/projects/project-1/environments",
  body: JSON.stringify({ slug: `e${made++}` })
})

interface Round extends Load {
  /** CPU microseconds of one request, in the server's process alone. */
  readonly cpu: number
  /** The same with Postgres. */
  readonly allCpu: number
}

/** What one server made must not keep the engine busy while the next one has its turn. */
const engineIsDone = async (sql: postgres.Sql): Promise<void> => {
  for (let tries = 0; tries < 600; tries++) {
    if (!(await busy(sql, "Environment"))) return
    await setTimeout(50)
  }
  throw new Error("the engine does not come to an end")
}

/** Rounds by server's name; in each round every server has its turn. */
const inTurns = async (
  servers: ReadonlyArray<Server>,
  request: () => { method: string; path: string; body?: string },
  headers: Record<string, string>,
  sql: postgres.Sql
): Promise<(name: string) => ReadonlyArray<Round>> => {
  const postmaster = await postmasterOf(sql)
  const results = new Map(servers.map(({ name }): [string, Array<Round>] => [name, []]))
  for (let round = 0; round < rounds; round++) {
    // The first of a round finds the machine as the last one left it: nobody is always the first.
    const turns = [...servers.slice(round % servers.length), ...servers.slice(0, round % servers.length)]
    for (const { name, port, child } of turns) {
      await engineIsDone(sql)
      let sent = 0
      const counted = () => {
        sent++
        return request()
      }
      const [own, store] = [cpuOf(child.pid ?? 0), cpuBelow(postmaster)]
      const found = await load(port, counted, headers, seconds, warmUpMs)
      const used = cpuOf(child.pid ?? 0) - own
      const stored = cpuBelow(postmaster) - store
      results.get(name)?.push({ ...found, cpu: (used / sent) * 1e6, allCpu: ((used + stored) / sent) * 1e6 })
    }
  }
  return (name) => results.get(name) ?? []
}

export const api = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const base = benchFolder()
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const running: Array<ChildProcess> = []
  const begun = <S extends { readonly child: ChildProcess }>(server: S): S => {
    running.push(server.child)
    return server
  }
  const endAll = async () => void (await Promise.all(running.splice(0).map(ended)))
  const plane = async (name: string, roles: string): Promise<Server> => ({
    name,
    ...begun(await apiProcess(base, url, { roles }))
  })
  const figures: Array<Figure> = []
  try {
    const apart = await plane("api", "api")
    const key = `svc_${randomBytes(20).toString("hex")}`
    const [org] = await sql<[{ id: string }]>`select id from organization where slug = 'main'`
    await sql`insert into api_key (org_id, id, name, key_prefix, digest, role, created_by)
      select ${org.id}, ${randomUUIDv7()}, 'bench', 'svc_', ${createHash("sha256").update(key).digest()}, 'admin', user_id
      from member where org_id = ${org.id}`
    await seedProjects(sql, org.id)
    // Other tenants' resources, so that all servers work on a store of a usual size.
    for (let i = 0; i < 20; i++) await seed(sql, 500)
    // Nothing of them is there: an engine that looked would make them all.
    await sql`update work set kept = false where kind = 'Cache'`
    await sql`analyze organization, resource, work`
    const headers = { authorization: `Bearer ${key}` }
    const peers = async () => [
      begun(await peer("raw", "./raw-server.ts", url)),
      begun(await peer("fastify", "./fastify-server.ts", url))
    ]
    await plane("engine", "engine")
    const servers = [...(await peers()), apart]
    const gets = await inTurns(servers, list, headers, sql)
    const posts = await inTurns(servers, create, headers, sql)
    figures.push(
      ...compared("GET, 20 projects", gets, ">= 1.0"),
      ...compared("POST, an environment", posts, ">= 0.8")
    )
    await endAll()
    const together = await inTurns(
      [...(await peers()), await plane("api", "api,engine")],
      create,
      headers,
      sql
    )
    figures.push(...compared("POST, engine in the same process", together))
  } finally {
    await endAll()
    await sql.end()
    fs.rmSync(base, { recursive: true, force: true })
  }
  return figures
}

const compared = (
  name: string,
  of: (server: string) => ReadonlyArray<Round>,
  aim?: string
): ReadonlyArray<Figure> => {
  const rates = (server: string) => median(of(server).map(({ rate }) => rate))
  const p99 = (server: string) => median(of(server).map((round) => round.p99))
  const ratios = (field: "rate" | "p99", to: string) =>
    of("api").map((round, i) => round[field] / (of(to)[i]?.[field] ?? Number.NaN))
  const cpu = (server: string) =>
    `${median(of(server).map((round) => round.cpu)).toFixed(0)}/${median(of(server).map((round) => round.allCpu)).toFixed(0)}`
  return [
    {
      name,
      value: rates("api"),
      unit: "/s",
      note: `raw ${rates("raw").toFixed(0)}/s, fastify ${rates("fastify").toFixed(0)}/s; CPU us without/with Postgres: ${cpu("api")}, raw ${cpu("raw")}, fastify ${cpu("fastify")}`
    },
    {
      name: `${name} / raw`,
      value: median(ratios("rate", "raw")),
      unit: "x",
      ...(aim === undefined ? {} : { aim }),
      note: spread(ratios("rate", "raw"))
    },
    {
      name: `${name} / fastify`,
      value: median(ratios("rate", "fastify")),
      unit: "x",
      ...(aim === undefined ? {} : { aim: "> 1.0" }),
      note: spread(ratios("rate", "fastify"))
    },
    {
      name: `${name}, p99 / raw's`,
      value: median(ratios("p99", "raw")),
      unit: "x",
      ...(aim === undefined ? {} : { aim: "<= 1.3" }),
      note: `${p99("api").toFixed(1)} ms; ${spread(ratios("p99", "raw"))}`
    }
  ]
}
