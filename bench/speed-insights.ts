/**
 * Speed insights: batches that one process stores durably, many in a statement, in turn with a durable statement for each;
 * and a report of 30 days by hour, with how long the sums take that it is made of. `speed-insights-full` is of 10 million
 * measurements, which take about ten minutes and 2 GB.
 */
import { randomUUID } from "node:crypto"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { AppConfig } from "#src/config.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { Measurements } from "#src/speed-insights/Measurements.ts"
import { hourMs, reportOf } from "#src/speed-insights/report.ts"
import { rollUp } from "#src/speed-insights/rollup.ts"
import { SpeedBatches } from "#src/speed-insights/SpeedBatches.ts"
import { SpeedProjects } from "#src/speed-insights/SpeedProjects.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { migrate } from "#src/store/migrate.ts"
import { Resources } from "#src/store/Resources.ts"
import { makeOrganization, makeProject } from "#test/setup/fixtures.ts"
import { cpuBelow, postmasterOf } from "./cpu.ts"
import { type Figure, median } from "./figures.ts"

const callers = 200
const roundMs = 4_000
const rounds = 3
const perBatch = 5
const days = 30
const reports = 5

const services = (url: string) =>
  Layer.mergeAll(SpeedBatches.layer, Measurements.layer, SpeedProjects.layer, Resources.layer).pipe(
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
      await sql`truncate speed_batch`

      // The days before today, as if the batches had come then.
      for (let day = 3; day <= days + 1; day++) {
        const of = new Date(Date.now() - day * 24 * hourMs).toISOString().slice(0, 10)
        await sql.unsafe(`create table "speed_batch_${of.replaceAll("-", "")}" partition of speed_batch
        for values from ('${of}') to (date '${of}' + 1)`)
      }
      await sql`
      insert into speed_batch (org_id, project_uid, environment_uid, day, batch_id, received_at, at, metric, value, route,
        device, navigation)
      select ${place.orgId}, ${place.projectId}, ${place.environmentUid}, (at at time zone 'UTC')::date, 'b' || i, at,
        array[at, at, at, at, at], '{0,1,2,3,4}',
        array[0.02 * exp(2 * random()), 900 * exp(random()), 60 * exp(2 * random()), 1200 * exp(random()), 200 * exp(2 * random())],
        array_fill('/route/' || floor(50 * random() ^ 2)::int, array[5]), array_fill(floor(2 * random())::int, array[5]),
        '{0,0,0,0,0}'
      from (select i, now() - interval '1 hour' - ${days * 24 - 2} * interval '1 hour' * (1 - i::float8 / ${events / perBatch}) as at
        from generate_series(1, ${events / perBatch}::int) i) b`
      await sql`analyze speed_batch`
      await sql`update speed_rollup set rolled_until = now() - interval '31 days'`
      const began = performance.now()
      await runtime.runPromise(rollUp)
      const summedMs = performance.now() - began
      await sql`vacuum analyze speed_day`
      const [size] =
        await sql`select sum(length(hours) + length(total))::int as bytes, count(*)::int as rows from speed_day`

      const measurements = await runtime.runPromise(Measurements)
      const until = Math.ceil(Date.now() / hourMs) * hourMs
      const wanted = {
        ...place,
        from: new Date(until - days * 24 * hourMs),
        until: new Date(until),
        device: undefined,
        route: undefined
      }
      const report = async () => reportOf(await runtime.runPromise(measurements.find(wanted)), wanted, "hour")
      const { summary } = await report()
      if (summary.samples !== events) throw new Error(`the report counts ${summary.samples} of ${events}`)
      const times: Array<{ readonly ms: number; readonly cpuMs: number }> = []
      globalThis.gc?.()
      const heapBefore = process.memoryUsage.rss()
      let heap = heapBefore
      for (let i = 0; i < reports; i++) {
        const cpu = process.cpuUsage()
        const start = performance.now()
        await report()
        const { user, system } = process.cpuUsage(cpu)
        times.push({ ms: performance.now() - start, cpuMs: (user + system) / 1_000 })
        heap = Math.max(heap, process.memoryUsage.rss())
      }
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
          name: `summing up, of ${events.toLocaleString("en")}`,
          value: (events * 1_000) / summedMs,
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
          value: median(times.map(({ ms }) => ms)),
          unit: "ms",
          aim: "< 1,000 ms"
        },
        {
          name: "processor of the process for it",
          value: median(times.map(({ cpuMs }) => cpuMs)),
          unit: "ms"
        },
        { name: "memory that it grew by", value: (heap - heapBefore) / 1e6, unit: "MB", aim: "< 50 MB" }
      ]
    } finally {
      await runtime.dispose()
      await sql.end()
    }
  }
