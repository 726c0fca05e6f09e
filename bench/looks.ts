/**
 * Looks at what is settled: a pass over 100,000 resources, how evenly three processes share them, and what 1,000,000 cost
 * that nobody has to look at yet. Rows are made by SQL; the far end is a map in memory, so that what remains is the engine.
 */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs"
import { setTimeout } from "node:timers/promises"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { localRegion } from "#schemas/catalog.ts"
import { defaults, EngineOptions } from "#src/engine/options.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import * as Worker from "#src/engine/Worker.ts"
import { Db } from "#src/store/Db.ts"
import { migrate } from "#src/store/migrate.ts"
import * as Work from "#src/store/Work.ts"
import { makeWorld, toyLayer } from "#test/setup/toy-kind.ts"
import { type Figure, median, spread } from "./figures.ts"

const rounds = 5
const passSize = 100_000
const restSize = 1_000_000

/** Settled resources of so many organizations, kept: due in the queue at no time. */
const fill = async (sql: postgres.Sql, organizations: number, count: number) => {
  await sql`truncate resource, work, organization cascade`
  await sql`
    insert into organization (id, name, slug, billing_status)
    select gen_random_uuid(), 'bench', 'bench-' || i, 'active' from generate_series(1, ${organizations}) i`
  await sql`
    with orgs as (select id, row_number() over () - 1 as n from organization),
    ids as (
      select uuidv7() as uid, o.id as org_id, i
      from generate_series(1, ${count}) i join orgs o on o.n = i % ${organizations}
    ),
    made as (
      insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, status, phase,
        observed_generation, settled, managed_by)
      select org_id, uid, 'Cache', org_id, 'production', 'cache-' || i, org_id, '{"size": 1}', '{"size": 1}', 'ready', 1,
        true, 'api' from ids
    )
    insert into work (org_id, uid, kind, pool, due_at, rank, kept)
    select org_id, uid, 'Cache', ${localRegion}, 'infinity', 'infinity', true from ids`
  await sql`vacuum analyze resource`
  await sql`vacuum analyze work`
}

/** An engine, and how many looks it has made. All things are as they should be. */
const engine = (url: string) => {
  const count = { looks: 0 }
  const world = makeWorld()
  const things = { get: () => 1 } as unknown as typeof world.things
  const log = { push: () => ++count.looks } as unknown as typeof world.log
  const layer = Worker.layer.pipe(
    Layer.provide(toyLayer({ ...world, things, log }, { driftInterval: "1 hour", concurrency: 2_000 })),
    Layer.provide(Registry.layer),
    Layer.provide(Layer.fresh(Work.layer)),
    Layer.provide(Work.signal),
    Layer.provide(Layer.fresh(Db.layer({ url: Redacted.make(url) }))),
    Layer.provide(Layer.succeed(EngineOptions, { ...defaults, concurrency: 2_000, orgShare: 1 }))
  )
  return { count, layer }
}
const during = <A>(layer: ReturnType<typeof engine>["layer"], work: () => Promise<A>): Promise<A> =>
  Effect.runPromise(Effect.scoped(Effect.andThen(Layer.build(layer), Effect.promise(work))))
const seconds = async (work: () => Promise<unknown>): Promise<number> => {
  const began = performance.now()
  await work()
  return (performance.now() - began) / 1_000
}
const until = async (done: () => boolean) => {
  while (!done()) await setTimeout(5)
}

/** From the start of the process: it looks at everything at once, since nobody else has. */
const pass = async (url: string, count: number): Promise<number> => {
  const { count: made, layer } = engine(url)
  return seconds(() => during(layer, () => until(() => made.looks >= count)))
}

/** How much more than an even share the busiest of three has, in percent. */
const unevenness = async (sql: postgres.Sql): Promise<number> => {
  const ids = [randomUUID(), randomUUID(), randomUUID()]
  const { slotsOf } = await import("#src/engine/members.ts")
  const members = ids.map((id) => ({ id, region: localRegion }))
  const shares = await Promise.all(
    ids.map(async (id) => {
      const slots = [...slotsOf(id, members)]
      const [row] = await sql<[{ n: number }]>`
        select count(*)::int as n from work where kept and svc_slot(uid) = any(${slots})`
      return row.n
    })
  )
  return (Math.max(...shares) / (passSize / 3) - 1) * 100
}

const rss = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync("/proc/self/status", "utf8"))?.[1]) / 1024

/** While another process is alive that has half of them, and then no more. */
const rest = async (url: string, sql: postgres.Sql): Promise<ReadonlyArray<Figure>> => {
  await fill(sql, 1_000, restSize)
  const [size] = await sql<[{ work: number; resource: number; kept: number }]>`
    select (pg_total_relation_size('work') / 1e6)::float8 as work,
      (pg_total_relation_size('resource') / 1e6)::float8 as resource,
      (pg_relation_size('work_kept') / 1e6)::float8 as kept`
  const other = randomUUID()
  await sql`insert into engine_process values (${other}, ${localRegion}, now() + interval '1 hour')`
  const { Metric } = await import("effect")
  const kept = async () => {
    const all = await Effect.runPromise(Metric.snapshot)
    const found = all.find((one) => one.id === "svc_looks_kept")
    return found?.type === "Gauge" ? Number(found.state.value) : 0
  }
  const untilKept = async (count: number) => {
    while ((await kept()) < count) await setTimeout(20)
  }
  const before = rss()
  return during(engine(url).layer, async () => {
    await untilKept(0.45 * restSize)
    const takeOver = await seconds(async () => {
      await sql`delete from engine_process where id = ${other}`
      await sql`notify svc_engine_process`
      await untilKept(0.99 * restSize)
    })
    globalThis.gc?.()
    const memory = rss() - before
    const commits = async () => {
      const [row] = await sql<[{ n: number }]>`
        select xact_commit::float8 as n from pg_stat_database where datname = current_database()`
      return row.n
    }
    await setTimeout(5_000)
    const first = await commits()
    await setTimeout(20_000)
    const statements = ((await commits()) - first) / 20
    return [
      { name: "1,000,000 at rest: taking over half of them", value: takeOver, unit: "s" },
      { name: "1,000,000 at rest: memory of the schedule", value: memory, unit: "MB" },
      {
        name: "1,000,000 at rest: statements, looks included",
        value: statements,
        unit: "/s",
        note: "278 looks a second, each hourly"
      },
      { name: "1,000,000 at rest: table of work", value: size.work, unit: "MB", note: "with its indexes" },
      { name: "1,000,000 at rest: index of what is kept", value: size.kept, unit: "MB" },
      {
        name: "1,000,000 at rest: table of resources",
        value: size.resource,
        unit: "MB",
        note: "with its indexes"
      }
    ]
  })
}

export const looks = async (url: string): Promise<ReadonlyArray<Figure>> => {
  await Effect.runPromise(migrate(Redacted.make(url)))
  const sql = postgres(url, { max: 2, onnotice: () => {} })
  const passes = async (organizations: number) => {
    await fill(sql, organizations, passSize)
    const times: Array<number> = []
    for (let round = 0; round < rounds; round++) times.push(await pass(url, passSize))
    return times
  }
  try {
    const one = await passes(1)
    const many = await passes(1_000)
    const uneven = await unevenness(sql)
    return [
      {
        name: "100,000 of one organization looked at",
        value: median(one),
        unit: "s",
        aim: "< 5",
        note: spread(one)
      },
      {
        name: "1,000 organizations of 100 looked at",
        value: median(many),
        unit: "s",
        aim: "< 5",
        note: spread(many)
      },
      { name: "three processes: the largest share, over even", value: uneven, unit: "%", aim: "< 5" },
      ...(await rest(url, sql))
    ]
  } finally {
    await sql.end()
  }
}
