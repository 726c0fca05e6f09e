/**
 * Requests under way to apps that may have several instances, as this node's HAProxy counts them. They are asked for every
 * second, averaged over some seconds so that a moment makes no difference, and told to whoever scales the apps.
 */
import * as Effect from "effect/Effect"
import { ask } from "#src/infra/haproxy/control.ts"
import { periodic } from "#src/loops/periodic.ts"
import { repeatable, type Sql } from "#src/store/Db.ts"
import { instancesBackend } from "../haproxy-config.ts"
import { instancesOf, type Routes } from "./Routes.ts"
import type { SiteRow } from "./rows.ts"

const everyMs = 1_000
/** Of a new count in the average: about five seconds count. */
const share = 0.3
/** Less than this is nobody. */
const least = 0.05

/** Requests under way by `address:port`, from HAProxy's answer to `show table`. */
export const countsOf = (answer: string): ReadonlyMap<string, number> =>
  new Map(
    answer.split("\n").flatMap((line): ReadonlyArray<[string, number]> => {
      const [, key, count] = /\bkey=(\S+) .*\bconn_cur=(\d+)/.exec(line) ?? []
      return key === undefined ? [] : [[key, Number(count)]]
    })
  )

interface Load {
  readonly orgId: string
  readonly environmentUid: string
  readonly requests: number
}

/** Moves the averages on by one count; one that has come down to nothing is told as 0 and left out from then on. */
export const averaged = (
  before: ReadonlyMap<string, Load>,
  sites: Iterable<SiteRow>,
  counts: ReadonlyMap<string, number>
): ReadonlyMap<string, Load> => {
  const next = new Map<string, Load>()
  for (const { orgId, environmentUid, target } of sites) {
    if (target === null || target.others === undefined) continue
    const now = instancesOf(target).reduce((sum, key) => sum + (counts.get(key) ?? 0), 0)
    const former = before.get(environmentUid)?.requests ?? 0
    const requests = former + (now - former) * share
    if (requests >= least) next.set(environmentUid, { orgId, environmentUid, requests })
    else if (former > 0) next.set(environmentUid, { orgId, environmentUid, requests: 0 })
  }
  return next
}

export const reportLoad = Effect.fnUntraced(function* (
  node: { readonly id: string; readonly socket: string },
  routes: Routes["Service"],
  sql: Sql
) {
  let loads: ReadonlyMap<string, Load> = new Map()
  const round = Effect.gen(function* () {
    const sites = [...routes.sites.values()]
    if (loads.size === 0 && !sites.some(({ target }) => target?.others !== undefined)) return
    // A HAProxy that is away has no requests: whoever starts it again tells of that.
    const answer = yield* Effect.orElseSucceed(ask(node.socket, `show table ${instancesBackend}`), () => "")
    loads = averaged(loads, sites, countsOf(answer))
    if (loads.size === 0) return
    yield* repeatable(sql`
      insert into edge_load (org_id, environment_uid, node, requests)
      select l."orgId", l."environmentUid", ${node.id}, l.requests
      from jsonb_to_recordset(${sql.json([...loads.values()])}::jsonb)
        as l("orgId" uuid, "environmentUid" uuid, requests real)
      join edge_site s on s.org_id = l."orgId" and s.environment_uid = l."environmentUid"
      on conflict (org_id, environment_uid, node) do update set requests = excluded.requests, at = now()`)
  })
  yield* periodic({ does: "tell how many requests are under way", every: everyMs, withinMs: 10_000 }, round)
})
