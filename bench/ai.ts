/**
 * Streams through an AI gateway, with its budget, against a bare pipe of bytes, in turn in the same run: as many as go
 * through with 50 clients, the processor time of each, and what the first event is late where the upstream takes its time.
 *
 * `SVC_BENCH_PORTKEY` names build/start-server.js of @portkey-ai/gateway 1.15.2, to be measured beside them; it answers no
 * stream unless it is installed with hono 4.9.7 and @hono/node-server 1.3.3.
 */
import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { Pool } from "undici"
import { freePort } from "#test/setup/postgres.ts"
import { type Figure, median } from "./figures.ts"
import { heapOf, heapTeller } from "./heap.ts"
import { ended, serving } from "./load.ts"

const clients = 50
const rounds = 5
const script = fileURLToPath(new URL("./ai-servers.ts", import.meta.url))
const program = fileURLToPath(new URL("../src/cli/svc.mjs", import.meta.url))
const bodyOf = (model: string) =>
  JSON.stringify({
    model,
    stream: true,
    max_tokens: 200,
    messages: [{ role: "user", content: "say something please ".repeat(10) }]
  })

interface Way {
  readonly name: "pipe" | "gateway" | "portkey"
  readonly port: number
  readonly path: string
  readonly headers: Record<string, string>
  readonly body: string
  readonly pid: number
}

interface Round {
  readonly perSecond: number
  /** Milliseconds of processor time of the process in the middle, for one stream. */
  readonly cpu: number
  readonly p50: number
  readonly p99: number
}

const ticks = (pid: number) => {
  const fields = fs.readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? []
  return (Number(fields[11]) + Number(fields[12])) * 10
}
const megabytes = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024

const quantile = (values: ReadonlyArray<number>, q: number) =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * q))] ?? 0

/** Milliseconds to the first event. */
const stream = async (pool: Pool, { name, path, headers, body }: Way) => {
  const start = performance.now()
  const { statusCode, body: answer } = await pool.request({
    path,
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body
  })
  let first = 0
  let tail = ""
  for await (const piece of answer) {
    if (first === 0) first = performance.now() - start
    tail = (tail + String(piece)).slice(-40)
  }
  if (statusCode !== 200 || !tail.includes("[DONE]")) throw new Error(`${name}: ${statusCode} ${tail}`)
  return first
}

const load = async (way: Way, streams: number): Promise<Round> => {
  const pool = new Pool(`http://127.0.0.1:${way.port}`, { connections: clients })
  const firsts: Array<number> = []
  let left = streams
  const client = async () => {
    while (left-- > 0) firsts.push(await stream(pool, way))
  }
  const [used, start] = [ticks(way.pid), performance.now()]
  await Promise.all(Array.from({ length: clients }, client))
  const [spent, seconds] = [ticks(way.pid) - used, (performance.now() - start) / 1_000]
  await pool.close()
  return {
    perSecond: streams / seconds,
    cpu: spent / streams,
    p50: quantile(firsts, 0.5),
    p99: quantile(firsts, 0.99)
  }
}

export const ai = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const base = fs.mkdtempSync(path.join(os.tmpdir(), "svc-bench-"))
  fs.chmodSync(base, 0o755)
  const children: Array<ChildProcess> = []
  const start = async (
    args: ReadonlyArray<string>,
    env: Record<string, string>,
    port: number,
    health: string
  ) => {
    const child = spawn(process.execPath, args, {
      cwd: base,
      env: { ...process.env, ...env },
      stdio: ["ignore", "ignore", "inherit", "ipc"]
    })
    children.push(child)
    await serving(port, health, child)
    return { child, pid: child.pid ?? 0 }
  }
  const server = async (does: string, env: Record<string, string> = {}) => {
    const port = await freePort()
    const { pid } = await start([script, does], { ...env, PORT: String(port) }, port, "/")
    return { port, pid }
  }
  try {
    const [fast, paced] = [await server("upstream"), await server("upstream", { PAUSE_MS: "10" })]
    const upstream = ({ port }: { readonly port: number }) => `http://127.0.0.1:${port}`
    const entry = (at: { readonly port: number }) => ({
      name: "stand-in",
      dialect: "openai",
      address: `${upstream(at)}/v1`,
      model: "real",
      key: "none",
      prices: { input: 1, output: 4 }
    })
    const [port, metricsPort] = await Promise.all([freePort(), freePort()])
    const { child, pid } = await start(
      [...heapTeller, program, "up", "--no-apply"],
      {
        SVC_DATA_DIR: path.join(base, "data"),
        XDG_CONFIG_HOME: path.join(base, "config"),
        SVC_DATABASE_URL: url,
        SVC_PORT: String(port),
        SVC_METRICS_PORT: String(metricsPort),
        SVC_ROLES: "api,engine",
        SVC_AI_UPSTREAMS: JSON.stringify({ "svc/fast": [entry(fast)], "svc/balanced": [entry(paced)] }),
        SVC_AI_GATEWAY_RATE_LIMIT: "100000000",
        SVC_AI_KEY_RATE_LIMIT: "100000000"
      },
      port,
      "/v1/health"
    )
    await new Promise((resolve) => setTimeout(resolve, 1_000))
    const stored: unknown = JSON.parse(
      fs.readFileSync(path.join(base, "config", "svc", "credentials.json"), "utf8")
    )
    const apiKey = /svc_[0-9a-f]{40}/.exec(JSON.stringify(stored))?.[0] ?? ""
    const post = async (target: string, payload: unknown): Promise<Record<string, string>> => {
      const response = await fetch(`http://127.0.0.1:${port}${target}`, {
        method: "POST",
        headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
        body: JSON.stringify(payload)
      })
      if (!response.ok) throw new Error(`${target}: ${response.status} ${await response.text()}`)
      return response.json() as Promise<Record<string, string>>
    }
    await post("/v1/orgs/main/projects", { name: "Bench", slug: "bench" })
    const gateways = "/v1/orgs/main/projects/bench/ai-gateways"
    const made = await post(gateways, {
      name: "bench",
      allowedModels: ["svc/fast", "svc/balanced"],
      monthlyBudgetUsd: 1_000_000
    })
    const key = await post(`${gateways}/${made["id"]}/keys`, { name: "bench" })

    const gateway = {
      port,
      pid,
      path: "/v1/runtime/ai/bench/chat/completions",
      headers: { authorization: `Bearer ${key["secret"]}` }
    }
    const waysTo = async (at: { readonly port: number }, model: string): Promise<ReadonlyArray<Way>> => {
      const pipe = await server("pipe", { UPSTREAM: upstream(at) })
      const body = bodyOf(model)
      const through = { path: "/v1/chat/completions", headers: {}, body }
      const ways: Array<Way> = [
        { name: "pipe", ...through, ...pipe },
        { name: "gateway", ...gateway, body }
      ]
      const portkey = process.env["SVC_BENCH_PORTKEY"]
      if (portkey !== undefined) {
        const own = await freePort()
        ways.push({
          name: "portkey",
          port: own,
          pid: (await start([portkey, `--port=${own}`, "--headless"], {}, own, "/")).pid,
          ...through,
          headers: {
            authorization: "Bearer none",
            "x-portkey-provider": "openai",
            "x-portkey-custom-host": `${upstream(at)}/v1`
          }
        })
      }
      return ways
    }
    const measured = async (at: { readonly port: number }, model: string, streams: number) => {
      const ways = await waysTo(at, model)
      for (const way of ways) await load(way, 100)
      const all = new Map(ways.map(({ name }) => [name, [] as Round[]]))
      for (let round = 0; round < rounds; round++) {
        const order = round % 2 === 0 ? ways : ways.toReversed()
        for (const way of order) all.get(way.name)?.push(await load(way, streams))
      }
      return (name: Way["name"], pick: (round: Round) => number) => median((all.get(name) ?? []).map(pick))
    }

    const quick = await measured(fast, "svc/fast", 400)
    const slow = await measured(paced, "svc/balanced", 150)
    // What is kept for the first ones of a process, such as compiled code, is kept by now.
    const [heap, resident] = [await heapOf(child), megabytes(pid)]
    await load({ name: "gateway", ...gateway, body: bodyOf("svc/fast") }, 10_000)
    const grown = (await heapOf(child)) - heap
    const peer = process.env["SVC_BENCH_PORTKEY"] !== undefined
    const perSecond = ({ perSecond }: Round) => perSecond
    const cpu = ({ cpu }: Round) => cpu
    return [
      {
        name: "streams of 32 events, of the pipe's",
        value: quick("gateway", perSecond) / quick("pipe", perSecond),
        unit: "x",
        aim: "0.6",
        note: `${Math.round(quick("gateway", perSecond))} and ${Math.round(quick("pipe", perSecond))} a second`
      },
      {
        name: "processor time of a stream",
        value: quick("gateway", cpu),
        unit: "ms",
        note: `pipe ${quick("pipe", cpu).toFixed(2)}`
      },
      ...(peer
        ? [
            {
              name: "processor time, of Portkey's without a budget",
              value: quick("gateway", cpu) / quick("portkey", cpu),
              unit: "x",
              aim: "at most 1",
              note: `Portkey ${quick("portkey", cpu).toFixed(2)} ms, ${Math.round(quick("portkey", perSecond))} a second`
            }
          ]
        : []),
      ...(["p50", "p99"] as const).map((which) => ({
        name: `first event later than the pipe's, ${which}`,
        value: slow("gateway", (round) => round[which]) - slow("pipe", (round) => round[which]),
        unit: "ms",
        ...(peer
          ? {
              note: `Portkey ${(slow("portkey", (round) => round[which]) - slow("pipe", (round) => round[which])).toFixed(1)}`
            }
          : {})
      })),
      {
        name: "heap after 10,000 streams more",
        value: grown,
        unit: "MB",
        aim: "at most 5",
        note: `${Math.round(heap)} before; ${Math.round(megabytes(pid) - resident)} MB more of ${Math.round(resident)} are resident`
      }
    ]
  } finally {
    for (const child of children) await ended(child)
    fs.rmSync(base, { recursive: true, force: true })
  }
}
