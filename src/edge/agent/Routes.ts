/** What a node serves, in memory, as the store last said; and each row as a line of HAProxy's maps. */
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import { isMapWord } from "#src/infra/haproxy/control.ts"
import { instanceSeparator, mostInstances } from "../haproxy-config.ts"
import type { Target } from "../target.ts"
import type { HostRow, SiteRow } from "./rows.ts"

/** Address and port of each instance of an app that may have several; of others none. */
export const instancesOf = ({ address, port, others }: Target): ReadonlyArray<string> =>
  others === undefined
    ? []
    : [{ address, port }, ...others].slice(0, mostInstances).map((one) => `${one.address}:${one.port}`)

/** None where it could not be a line: nothing is served then. */
const hostLine = ({ environmentUid, hstsSeconds, redirectTo }: HostRow) =>
  `${environmentUid}|${hstsSeconds}|${redirectTo ?? ""}`

const siteLine = ({ access, asleep, target }: SiteRow) => {
  if (target === null || asleep) return `${access}||||`
  const line = `${access}|${target.address}|${target.port}|${target.tls ?? ""}|${target.host ?? ""}`
  const instances = instancesOf(target)
  return instances.length === 0 ? line : `${line}|${instances.length}|${instances.join(instanceSeparator)}`
}

const lines = <Row>(rows: ReadonlyMap<string, Row>, line: (row: Row) => string) =>
  new Map(
    [...rows].flatMap(([key, row]): ReadonlyArray<[string, string]> => {
      const value = line(row)
      return isMapWord(key) && isMapWord(value) ? [[key, value]] : []
    })
  )

const makeRoutes = () => {
  const hosts = new Map<string, HostRow>()
  const sites = new Map<string, SiteRow>()
  const watchers = new Set<() => void>()
  const loaded = Deferred.makeUnsafe<void>()
  let ahead = true
  return {
    hosts: hosts as ReadonlyMap<string, HostRow>,
    sites: sites as ReadonlyMap<string, SiteRow>,
    /** Until the store was read once nobody can say that there is no such host. */
    loaded: Deferred.await(loaded),
    /** All of it was read. */
    becomeLoaded: () => Deferred.doneUnsafe(loaded, Exit.void),
    /** The site that a host name leads to. */
    siteOf: (hostname: string): SiteRow | undefined => {
      const host = hosts.get(hostname)
      return host === undefined ? undefined : sites.get(host.environmentUid)
    },
    /** Whether HAProxy has yet to take up something of it. */
    isAhead: () => ahead,
    /** Rows in place of those of these names; `all`: of every name. */
    replaceHosts: (names: Iterable<string> | "all", rows: ReadonlyArray<HostRow>) => {
      ahead = true
      if (names === "all") hosts.clear()
      else for (const name of names) hosts.delete(name)
      for (const row of rows) hosts.set(row.hostname, row)
    },
    replaceSites: (uids: Iterable<string> | "all", rows: ReadonlyArray<SiteRow>) => {
      ahead = true
      if (uids === "all") sites.clear()
      else for (const uid of uids) sites.delete(uid)
      for (const row of rows) sites.set(row.environmentUid, row)
    },
    hostLines: () => lines(hosts, hostLine),
    siteLines: () => lines(sites, siteLine),
    hostLine: (name: string) => lines(new Map(entry(hosts, name)), hostLine).get(name),
    siteLine: (uid: string) => lines(new Map(entry(sites, uid)), siteLine).get(uid),
    /** Calls back when HAProxy has taken up everything, until the answer is called. */
    watch: (changed: () => void) => {
      watchers.add(changed)
      return () => void watchers.delete(changed)
    },
    /** HAProxy has taken up everything. */
    announce: () => {
      ahead = false
      for (const changed of watchers) changed()
    }
  }
}

const entry = <Row>(rows: ReadonlyMap<string, Row>, key: string): ReadonlyArray<[string, Row]> => {
  const row = rows.get(key)
  return row === undefined ? [] : [[key, row]]
}

export class Routes extends Context.Service<Routes, ReturnType<typeof makeRoutes>>()("svc/edge/Routes") {
  static readonly layer = Layer.sync(Routes, makeRoutes)
}
