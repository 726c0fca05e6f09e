/** What a managed cache server tells of its work (Redis documentation, "INFO"). */
import { type Counted, perSecond } from "./rates.ts"
import { known } from "./usage.ts"

export const redisSections = ["server", "clients", "memory", "stats"] as const

const number = (info: ReadonlyMap<string, string>, name: string): number | undefined => {
  const text = info.get(name)
  return text === undefined || !/^-?\d+(\.\d+)?$/.test(text) ? undefined : Number(text)
}

/** What tells a start of the server from every other one. */
export const redisIdentity = (info: ReadonlyMap<string, string>): string => info.get("run_id") ?? ""

export const redisCounters = (info: ReadonlyMap<string, string>): Counted["counters"] => ({
  hits: number(info, "keyspace_hits"),
  misses: number(info, "keyspace_misses"),
  evictions: number(info, "evicted_keys"),
  received: number(info, "total_net_input_bytes"),
  transmitted: number(info, "total_net_output_bytes")
})

/** The connection that asked is one of the clients, and no application's. */
export const redisValues = (info: ReadonlyMap<string, string>, before: Counted | undefined, now: Counted) => {
  const rate = (name: string) => perSecond(name, before, now)
  const clients = number(info, "connected_clients")
  return known({
    "redis.clients": clients === undefined ? undefined : Math.max(0, clients - 1),
    "redis.used_memory_bytes": number(info, "used_memory"),
    "redis.memory_limit_bytes": number(info, "maxmemory"),
    "redis.hits": rate("hits"),
    "redis.misses": rate("misses"),
    "redis.evictions": rate("evictions"),
    "network.receive_bytes": rate("received"),
    "network.transmit_bytes": rate("transmitted")
  })
}
