/**
 * One look at everything that runs on this machine: what the kernel counts, what the servers tell, and how full the disks
 * are, as samples. It only reads. Rates are averages since the look before, so the first one has none.
 */
import * as os from "node:os"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { AppConfig } from "#src/config.ts"
import { type GroupSystem, thisSystem } from "#src/infra/host/control-group-place.ts"
import { Host } from "#src/infra/host/Host.ts"
import type { Sample, Values } from "../MetricSamples.ts"
import { type ContainerHere, makeContainersHere } from "./containers.ts"
import { makeDisks } from "./disks.ts"
import { usageCounters, usageValues } from "./machine-values.ts"
import { makeOwners } from "./owners.ts"
import { postgresCounters, postgresValues } from "./postgres-question.ts"
import { ageSeconds, identityOf, type Process } from "./process-usage.ts"
import { makeQuestions, type Told } from "./questions.ts"
import type { Counted } from "./rates.ts"
import { redisCounters, redisIdentity, redisValues } from "./redis-info.ts"
import { serverUsage } from "./server-usage.ts"
import { makeServersHere, type ServerHere } from "./servers-here.ts"
import { standbyValues } from "./standby-values.ts"
import { makeStarts } from "./starts.ts"
import { known, type Usage } from "./usage.ts"

/**
 * Two looks that are closer tell no rates, because counters of processor time move in steps of 10 ms; the next one is
 * compared with the first of them.
 */
const shortestMs = 500

/** `folder`: where what must outlive this process is kept. */
export const makeLook = (folder: string, system: GroupSystem = thisSystem) =>
  Effect.gen(function* () {
    const { procDir } = system
    const host = yield* Host
    const { dataDir } = yield* AppConfig
    const serversHere = makeServersHere(dataDir, procDir)
    const containersHere = yield* makeContainersHere(system)
    const owners = yield* makeOwners
    const ask = yield* makeQuestions
    const disks = makeDisks(host)
    const starts = makeStarts(host, folder)
    const size = { cpus: os.availableParallelism(), memoryBytes: os.totalmem() }
    /** What the look before has counted, by what it was of. */
    let counted: ReadonlyMap<string, Counted> = new Map()
    let countedMs = Number.NEGATIVE_INFINITY

    const take = Effect.gen(function* () {
      const at = new Date(yield* Clock.currentTimeMillis)
      const servers = yield* serversHere
      const owned = yield* owners(new Set(servers.map(({ uid }) => uid)))
      const placed = yield* host.holding.placed
      const usageOf = serverUsage(procDir, placed.usable ? placed.place : undefined)
      const again = yield* starts.note(new Map(servers.map(({ key, run }) => [key, run])), at.getTime())
      const now = new Map<string, Counted>()
      const beganMs = Number(yield* Clock.currentTimeNanos) / 1e6
      const early = beganMs - countedMs < shortestMs

      /** Values of what was counted just now, with what was counted of the same thing before. */
      const since = (
        name: string,
        identity: string,
        counters: Counted["counters"],
        values: (before: Counted | undefined, now: Counted) => Values
      ) =>
        Effect.map(Clock.currentTimeNanos, (nanos) => {
          const one = { atMs: Number(nanos) / 1e6, identity, counters }
          const before = counted.get(name)
          now.set(name, early && before?.identity === identity ? before : one)
          return values(early ? undefined : before, one)
        })
      const ofMachine = (name: string, process: Process, usage: Usage) =>
        Effect.map(
          since(`${name}/machine`, identityOf(procDir, process), usageCounters(usage), (before, now) =>
            usageValues(usage, size, before, now)
          ),
          (values) => ({ ...values, ...known({ "runtime.uptime_seconds": ageSeconds(procDir, process) }) })
        )

      const machine = new Map<string, Values>()
      for (const server of servers) {
        if (server.process !== undefined)
          machine.set(server.key, yield* ofMachine(server.key, server.process, usageOf(server)))
        // What the kernel tells is read at once: others have their turn in between.
        yield* Effect.yieldNow
      }
      const told = yield* ask(servers.filter(isThere))
      const ofServer = (key: string, one: Told) =>
        one.program === "redis"
          ? since(`${key}/server`, redisIdentity(one.info), redisCounters(one.info), (before, now) =>
              redisValues(one.info, before, now)
            )
          : since(`${key}/server`, one.answer.counted, postgresCounters(one.answer), (before, now) =>
              postgresValues(one.answer, before, now)
            )
      const space = yield* disks.values

      const byResource = new Map<string, { readonly orgId: string; values: Values }>()
      for (const { key, uid, standby } of servers) {
        const orgId = owned.get(uid)
        if (orgId === undefined) continue
        const one = told.get(key)
        const values: Values = {
          ...machine.get(key),
          ...(one === undefined ? {} : yield* ofServer(key, one)),
          ...space.get(key),
          ...known({ "runtime.restarts": again.get(key) })
        }
        const before = byResource.get(uid)?.values ?? {}
        const more = standby === undefined ? values : standbyValues(standby, values)
        byResource.set(uid, { orgId, values: { ...before, ...more } })
      }
      const ofContainer = ({ orgId, uid, id, process, usage }: ContainerHere) =>
        Effect.map(ofMachine(id, process, usage), (values) => ({ orgId, uid, values }))
      const containers = yield* Effect.forEach(yield* containersHere, ofContainer)
      counted = now
      if (!early) countedMs = beganMs
      return [...[...byResource].map(([uid, one]) => ({ uid, ...one })), ...containers].map(
        ({ orgId, uid, values }): Sample => ({ orgId, uid, source: "host", at, values })
      )
    })

    return {
      take,
      /** Sees how much of the disk servers use whose turn it is. It may take long. */
      walk: Effect.flatMap(serversHere, (servers) =>
        disks.walk(new Map(servers.map(({ key, folder }) => [key, folder])))
      ),
      /** Somebody else has looked meanwhile. */
      forget: Effect.sync(() => {
        counted = new Map()
        starts.forget()
      })
    }
  })

/** Systems without such files do not tell of processes; there it is asked whether it answers. */
const isThere = ({ process: one }: ServerHere): boolean => one !== undefined || process.platform !== "linux"
