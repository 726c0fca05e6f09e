/**
 * What the Model Context Protocol costs: an operation run by the tool `execute` against the same operation as a plain
 * request, in turns, on one server; and the memory that the server keeps of clients that introduce themselves.
 */
import { createHash, randomBytes, randomUUIDv7 } from "node:crypto"
import * as fs from "node:fs"
import postgres from "postgres"
import { apiProcess, benchFolder, seedProjects } from "./api-process.ts"
import { cpuOf } from "./cpu.ts"
import { type Figure, median } from "./figures.ts"
import { heapOf, heapTeller } from "./heap.ts"
import { ended, load } from "./load.ts"

const rounds = 9
const seconds = 1.5
const greetings = 2_000

const accept = "application/json, text/event-stream"
const call = { name: "execute", arguments: { operation: "projects.list" } }
const latest = "2026-07-28"
const modern = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "tools/call",
  params: {
    ...call,
    _meta: {
      "io.modelcontextprotocol/protocolVersion": latest,
      "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1" },
      "io.modelcontextprotocol/clientCapabilities": {}
    }
  }
})
const modernHeaders = { "mcp-protocol-version": latest, "mcp-method": "tools/call", "mcp-name": "execute" }
const earlier = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: call })
/** With a name as long as strangers may send. */
const initialize = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: {
    protocolVersion: "2025-11-25",
    capabilities: {},
    clientInfo: { name: "x".repeat(60_000), version: "1" }
  }
})

export const mcp = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const base = benchFolder()
  const { port, child: server } = await apiProcess(base, url, {
    args: heapTeller,
    ipc: true
  })
  const heap = () => heapOf(server)
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const key = `svc_${randomBytes(20).toString("hex")}`
  const authorization = `Bearer ${key}`
  try {
    const org = randomUUIDv7()
    await sql`insert into organization (id, name, slug, billing_status) values (${org}, 'Bench', 'bench', 'active')`
    await sql`insert into api_key (org_id, id, name, key_prefix, digest, role)
      values (${org}, ${randomUUIDv7()}, 'bench', 'svc_', ${createHash("sha256").update(key).digest()}, 'admin')`
    await seedProjects(sql, org)
    const post = (body: string) => () => ({ method: "POST", path: "/mcp", body })
    const ways = [
      {
        name: "plain",
        request: () => ({ method: "GET", path: "/v1/orgs/bench/projects" }),
        headers: { authorization }
      },
      { name: "modern", request: post(modern), headers: { authorization, accept, ...modernHeaders } },
      { name: "earlier", request: post(earlier), headers: { authorization, accept } }
    ].map((way) => ({
      ...way,
      rates: [] as Array<number>,
      p99: [] as Array<number>,
      cpu: [] as Array<number>
    }))
    for (let round = 0; round < rounds; round++) {
      for (const way of ways) {
        let sent = 0
        const before = cpuOf(server.pid ?? 0)
        const counted = () => {
          sent++
          return way.request()
        }
        const { rate, p99 } = await load(port, counted, way.headers, seconds)
        way.cpu.push((cpuOf(server.pid ?? 0) - before) / sent)
        way.rates.push(rate)
        way.p99.push(p99)
      }
    }
    const [plain, newest, older] = ways
    if (plain === undefined || newest === undefined || older === undefined)
      throw new Error("a way is missing")
    const ratio = (way: (typeof ways)[number]) =>
      median(way.rates.map((rate, round) => rate / (plain.rates[round] ?? rate)))
    const cpu = (way: (typeof ways)[number]) => median(plain.cpu) / median(way.cpu)
    const shown = (way: (typeof ways)[number]) =>
      `${Math.round(median(way.rates))}/s, p99 ${median(way.p99).toFixed(1)} ms, CPU ${(median(way.cpu) * 1e6).toFixed(0)} µs`

    const greet = async (count: number) => {
      for (let at = 0; at < count; at += 20)
        await Promise.all(
          Array.from({ length: 20 }, async () => {
            const response = await fetch(`http://127.0.0.1:${port}/mcp`, {
              method: "POST",
              headers: { "content-type": "application/json", accept },
              body: initialize
            })
            if (response.status !== 200) throw new Error(`status ${response.status}`)
            await response.text()
          })
        )
      return heap()
    }
    const [before, after] = [await greet(400), await greet(greetings)]
    return [
      {
        name: `execute (${latest}) / plain GET, 20 projects`,
        value: ratio(newest),
        unit: "x",
        aim: ">= 0.7",
        note: `plain ${shown(plain)}; execute ${shown(newest)}`
      },
      {
        name: "execute (earlier revisions) / plain GET",
        value: ratio(older),
        unit: "x",
        note: shown(older)
      },
      { name: "CPU of a plain GET / of execute, server alone", value: cpu(newest), unit: "x" },
      {
        name: `heap kept of ${greetings.toLocaleString("en")} initialize`,
        value: after - before,
        unit: "MB",
        aim: "flat",
        note: `${before.toFixed(1)} MB before, ${after.toFixed(1)} MB after; each is 60 kB`
      }
    ]
  } finally {
    // Its channel would keep it alive.
    if (server.connected) server.disconnect()
    await ended(server)
    await sql.end()
    fs.rmSync(base, { recursive: true, force: true })
  }
}
