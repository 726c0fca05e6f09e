/**
 * What it costs that an agent calls: a GET with the token of a grant that has every scope against the same GET with an
 * API key, on one process, in turns within one run.
 */
import { randomUUIDv7 } from "node:crypto"
import * as fs from "node:fs"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { digestOf } from "#src/access/Access.ts"
import { newApiKey } from "#src/access/bootstrap.ts"
import { grantable } from "#src/agents/scopes.ts"
import { newAccessToken } from "#src/agents/tokens.ts"
import { apiProcess, benchFolder, seedProjects } from "./api-process.ts"
import { cpuBelow, cpuOf, postmasterOf } from "./cpu.ts"
import { type Figure, median } from "./figures.ts"
import { ended, load } from "./load.ts"

const rounds = 11
const seconds = 1.5

const measured = () => ({
  rates: [] as Array<number>,
  p99: [] as Array<number>,
  cpu: [] as Array<number>
})

export const agents = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const base = benchFolder()
  const { port, child } = await apiProcess(base, url)
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const [org, user, grant, key] = [randomUUIDv7(), randomUUIDv7(), randomUUIDv7(), newApiKey()]
  const token = newAccessToken()
  const scopes = [...grantable.keys()]
  const callers = [
    { token: key, ...measured() },
    { token: Redacted.value(token.token), ...measured() }
  ] as const
  try {
    await sql`insert into organization (id, name, slug, billing_status) values (${org}, 'Bench', 'bench', 'active')`
    await sql`insert into account (id, email, name) values (${user}, 'bench@example.test', 'Bench')`
    await sql`insert into member (org_id, id, user_id, role) values (${org}, ${randomUUIDv7()}, ${user}, 'owner')`
    await sql`insert into api_key (org_id, id, name, key_prefix, digest, role, created_by)
      values (${org}, ${randomUUIDv7()}, 'bench', 'svc_', ${digestOf(key)}, 'admin', ${user})`
    await sql`insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes)
      values (${org}, ${grant}, ${user}, 'svc-cli', 'svc command line', 'api', 'admin', ${scopes})`
    await sql`insert into agent_access_token (org_id, grant_id, digest, expires_at)
      values (${org}, ${grant}, ${token.digest}, now() + interval '1 hour')`
    await seedProjects(sql, org)
    const postmaster = await postmasterOf(sql)
    const used = () => cpuOf(child.pid ?? 0) + cpuBelow(postmaster)
    for (let round = 0; round < rounds; round++) {
      for (const caller of callers) {
        const before = used()
        let sent = 0
        const get = () => {
          sent++
          return { method: "GET", path: "/v1/orgs/bench/projects" }
        }
        const { rate, p99 } = await load(port, get, { authorization: `Bearer ${caller.token}` }, seconds)
        caller.cpu.push((used() - before) / sent)
        caller.rates.push(rate)
        caller.p99.push(p99)
      }
    }
  } finally {
    await ended(child)
    await sql.end()
    fs.rmSync(base, { recursive: true, force: true })
  }
  const [byKey, byGrant] = callers
  const ratios = byGrant.rates.map((rate, round) => rate / (byKey.rates[round] ?? rate))
  return [
    {
      name: `GET, 20 projects, with a grant of ${scopes.length} scopes`,
      value: median(byGrant.rates),
      unit: "/s",
      note: `p99 ${median(byGrant.p99).toFixed(1)} ms; with a key ${Math.round(median(byKey.rates))}/s, p99 ${median(byKey.p99).toFixed(1)} ms`
    },
    {
      name: "with a grant / with a key",
      value: median(ratios),
      unit: "x",
      aim: ">= 0.95",
      note: `rounds ${ratios.map((ratio) => ratio.toFixed(2)).join(" ")}`
    },
    {
      // What else runs on the machine does not disturb this one.
      name: "CPU of a GET with a key / with a grant, store included",
      value: median(byKey.cpu) / median(byGrant.cpu),
      unit: "x",
      aim: ">= 0.95",
      note: `${(median(byKey.cpu) * 1e6).toFixed(0)} µs with a key, ${(median(byGrant.cpu) * 1e6).toFixed(0)} µs with a grant`
    }
  ]
}
