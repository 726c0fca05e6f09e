/**
 * Speed insights: batches that one process stores durably, many in a statement, in turn with a durable statement for each;
 * and a report of 30 days by hour, with as many routes as are kept. `speed-insights-full` is of 10 million measurements,
 * which take 2 GB.
 */
import { execFile } from "node:child_process"
import { randomUUID } from "node:crypto"
import * as path from "node:path"
import { promisify } from "node:util"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { AppConfig } from "#src/config.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { hourMs } from "#src/speed-insights/report.ts"
import { SpeedBatches } from "#src/speed-insights/SpeedBatches.ts"
import { SpeedProjects } from "#src/speed-insights/SpeedProjects.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { migrate } from "#src/store/migrate.ts"
import { Resources } from "#src/store/Resources.ts"
import { makeOrganization, makeProject } from "#test/setup/fixtures.ts"
import { cpuBelow, postmasterOf } from "./cpu.ts"
import { type Figure, median } from "./figures.ts"
import { perBatch, seedDays } from "./speed-insights-days.ts"
import type { Made } from "./speed-insights-report.ts"

const callers = 200
const roundMs = 4_000
const rounds = 3
const days = 30
const reports = 5

const services = (url: string) =>
  Layer.mergeAll(SpeedBatches.layer, SpeedProjects.layer, Resources.layer).pipe(
    Layer.provide([EdgeSites.layer, KeyRing.layerEphemeral]),
    Layer.provideMerge(AppConfig.layerWith({}, {})),
    Layer.provideMerge(Db.layer({ url: Redacted.make(url) })),
    Layer.provide(Logger.layer([])),
    Layer.fresh
  )

/** A second's measurements, and milliseconds of processor that a batch takes here and in Postgres. */
const rateOf = async (postmaster: number, one: () => Promise<unknown>) => {
  let batches = 0
  const used = () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1_000 + cpuBelow(postmaster) * 1_000
  }
  const before = used()
  const start = performance.now()
  const caller = async () => {
    while (performance.now() < start + roundMs) {
      await one()
      batches++
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
  const rate = (batches * perBatch * 1_000) / (performance.now() - start)
  return { rate, cpuMs: (used() - before) / batches }
}

export const speedInsights =
  (events: number) =>
  async (url: string): Promise<ReadonlyArray<Figure>> => {
    await Effect.runPromise(migrate(Redacted.make(url)))
    const perDay = Math.ceil(events / days / perBatch)
    const sql = postgres(url, { max: 10, onnotice: () => {} })
    const runtime = ManagedRuntime.make(services(url))
    try {
      const place = await runtime.runPromise(
        Effect.gen(function* () {
          const { id: orgId } = yield* makeOrganization()
          const { projectId, production } = yield* makeProject(orgId, "shop")
          yield* (yield* SpeedProjects).get(orgId, projectId)
          return { orgId, projectId, environmentUid: production }
        })
      )
      const batches = await runtime.runPromise(SpeedBatches)
      const measured = () =>
        Array.from({ length: perBatch }, (_, i) => ({
          eventId: `e${i}`,
          metric: "LCP" as const,
          value: 1_000 + 3_000 * Math.random(),
          timestamp: DateTime.makeUnsafe(Date.now()),
          route: "/products/:id",
          device: "mobile" as const,
          navigationType: "navigate" as const
        }))
      const grouped = () =>
        runtime.runPromise(batches.add({ ...place, batchId: randomUUID(), events: measured(), bytes: 1_000 }))
      const single = async () => {
        const all = measured()
        const at = all.map(({ timestamp }) => DateTime.formatIso(timestamp))
        await sql`
        insert into speed_batch (org_id, project_uid, environment_uid, day, batch_id, at, metric, value, route, device,
          navigation)
        values (${place.orgId}, ${place.projectId}, ${place.environmentUid}, ${at[0]!.slice(0, 10)}, ${randomUUID()},
          ${at}, ${all.map(() => 3)}, ${all.map(({ value }) => value)}, ${all.map(({ route }) => route)},
          ${all.map(() => 1)}, ${all.map(() => 0)})
        on conflict do nothing returning 1`
      }
      await Promise.all([grouped(), single()])
      const postmaster = await postmasterOf(sql)
      const rates: Array<Readonly<Record<"grouped" | "single", Awaited<ReturnType<typeof rateOf>>>>> = []
      for (let round = 0; round < rounds; round++)
        rates.push({ single: await rateOf(postmaster, single), grouped: await rateOf(postmaster, grouped) })
      const { first, summedMs } = await runtime.runPromise(seedDays(sql, place, days, perDay))
      const [size] =
        await sql`select sum(length(hours) + length(total))::int as bytes, count(*)::int as rows from speed_day`
      // Ends in the midst of a day, so that neither the first nor the last of its days is whole.
      const from = new Date(first + 14 * hourMs).toISOString()
      const program = path.join(import.meta.dirname, "speed-insights-report.ts")
      const { stdout } = await promisify(execFile)(process.execPath, [
        ...["--expose-gc", program, url, JSON.stringify(place), from, String(days), String(reports)]
      ])
      const made: ReadonlyArray<Made> = JSON.parse(stdout)
      if (made.some(({ samples }) => samples !== perDay * perBatch * days))
        throw new Error(`the report does not count every measurement: ${stdout}`)
      const [many, one] = [
        median(rates.map(({ grouped }) => grouped.rate)),
        median(rates.map(({ single }) => single.rate))
      ]
      return [
        { name: "measurements stored, many in a statement", value: many, unit: "/s" },
        { name: "measurements stored, a statement for a batch", value: one, unit: "/s" },
        { name: "many in a statement / one", value: many / one, unit: "x", aim: ">= 3 x" },
        {
          name: "processor for a batch, here and in Postgres",
          value: median(rates.map(({ grouped }) => grouped.cpuMs)),
          unit: "ms",
          note: `a statement for each: ${median(rates.map(({ single }) => single.cpuMs)).toPrecision(3)} ms`
        },
        {
          name: "summing up a day",
          value: (perDay * perBatch * 1_000) / summedMs,
          unit: "/s"
        },
        {
          name: "sums of 30 days",
          value: Number(size?.["bytes"]) / 1e6,
          unit: "MB",
          note: `${size?.["rows"]} rows`
        },
        {
          name: "report of 30 days by hour, with routes",
          value: median(made.map(({ ms }) => ms)),
          unit: "ms",
          aim: "< 1,000 ms"
        },
        {
          name: "processor of the process for it",
          value: median(made.map(({ cpuMs }) => cpuMs)),
          unit: "ms"
        },
        {
          name: "memory that it takes",
          value: Math.max(...made.map(({ mb }) => mb)),
          unit: "MB",
          aim: "< 50 MB"
        }
      ]
    } finally {
      await runtime.dispose()
      await sql.end()
    }
  }
