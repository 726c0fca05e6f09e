/**
 * Reconciles per second: looks that find what was there before (load, decode, observe), and runs that record a change
 * (claim, load, observe, record, fenced). Against graphile-worker's no-op jobs (tuned as its documentation's performance
 * page says: local queue, batched completion) and against the bare SQL of leasing in batches from Node, on the same server
 * in the same run.
 */
import { randomUUIDv7 } from "node:crypto"
import { setTimeout } from "node:timers/promises"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { Logger, run } from "graphile-worker"
import postgres from "postgres"
import { localRegion } from "#schemas/catalog.ts"
import { defaults, EngineOptions } from "#src/engine/options.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import * as Worker from "#src/engine/Worker.ts"
import { Db } from "#src/store/Db.ts"
import { migrate } from "#src/store/migrate.ts"
import * as Work from "#src/store/Work.ts"
import { makeWorld, toyLayer } from "#test/setup/toy-kind.ts"
import { type Figure, median } from "./figures.ts"

const count = 60_000
const lookSeconds = 3
/** Resources of which something is recorded: enough that planning the statements on new connections does not count. */
const changes = 40_000

/** Fills the store with resources that are ready already: what remains is looking. */
export const seed = async (sql: postgres.Sql, resources: number): Promise<string> => {
  const org = randomUUIDv7()
  await sql`insert into organization (id, name, slug, billing_status) values (${org}, 'bench', ${`bench-${org.slice(-12)}`}, 'active')`
  const parent = randomUUIDv7()
  await sql`
    with ids as (
      select uuidv7() as uid, i from generate_series(1, ${resources}) i
    ), made as (
      insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, status, phase,
        observed_generation, settled, managed_by, conditions)
      select ${org}, uid, 'Cache', ${parent}, 'production', 'cache-' || i, ${parent}, '{"size": 1}', '{"size": 1}', 'ready', 1, true, 'api',
        '[{"type": "Ready", "status": "true", "reason": "Converged", "message": "Ready", "lastTransitionAt": "2026-01-01T00:00:00.000Z", "observedGeneration": 1},
          {"type": "Synced", "status": "true", "reason": "Converged", "message": "What is there matches", "lastTransitionAt": "2026-01-01T00:00:00.000Z", "observedGeneration": 1}]'
      from ids
    )
    insert into work (org_id, uid, kind, pool, due_at, rank, kept)
    select ${org}, uid, 'Cache', ${localRegion}, 'infinity', 'infinity', true from ids`
  await sql`vacuum analyze resource`
  await sql`vacuum analyze work`
  return org
}

const makeDue = (sql: postgres.Sql) => sql`update work set due_at = now(), rank = now(), kept = false`
/** Due or leased. By the index, so that asking costs the run nothing. */
export const busy = async (sql: postgres.Sql, kind: string): Promise<boolean> => {
  const [row] = await sql<[{ busy: boolean }]>`
    select exists (select from work where kind = ${kind} and rank < now() + interval '95 seconds') as busy`
  return row.busy
}

const timed = async (work: () => Promise<unknown>): Promise<number> => {
  const before = performance.now()
  await work()
  return (performance.now() - before) / 1000
}
const poll = async (done: () => Promise<boolean>): Promise<void> => {
  while (!(await done())) await setTimeout(10)
}

/** An engine that counts how often it observes. */
const counting = async (url: string, sql: postgres.Sql, driftInterval: Duration.Input) => {
  const world = makeWorld()
  const count = { looks: 0 }
  const counted = { ...world, log: { push: () => ++count.looks } as unknown as typeof world.log }
  for (const { uid } of await sql<Array<{ uid: string }>>`select uid::text as uid from work`)
    counted.things.set(uid, 1)
  const engine = Worker.layer.pipe(
    Layer.provide(toyLayer(counted, { driftInterval, concurrency: 2_000 })),
    Layer.provide(Registry.layer),
    Layer.provide(Work.layer),
    Layer.provide(Work.signal),
    Layer.provide(Db.layer({ url: Redacted.make(url) })),
    Layer.provide(Layer.succeed(EngineOptions, { ...defaults, concurrency: 2_000, orgShare: 1 }))
  )
  const during = (work: () => Promise<unknown>) =>
    Effect.runPromise(Effect.scoped(Effect.andThen(Layer.build(engine), Effect.promise(work))))
  return { count, during }
}

/** Of what is settled, due again as soon as it has been looked at. */
export const lookRate = async (url: string, sql: postgres.Sql): Promise<number> => {
  await sql`update work set due_at = 'infinity', rank = 'infinity', kept = true, lease_token = null, lease_until = null`
  const { count, during } = await counting(url, sql, "1 milli")
  let rate = 0
  await during(async () => {
    await poll(async () => count.looks > 20_000)
    const before = count.looks
    const seconds = await timed(() => setTimeout(lookSeconds * 1_000))
    rate = (count.looks - before) / seconds
  })
  return rate
}

/** Each result differs from what is stored. */
export const changeRate = async (url: string, sql: postgres.Sql): Promise<number> => {
  const chosen = sql`uid in (select uid from work order by uid limit ${changes})`
  await sql`update resource set status = '{"size": 0}' where ${chosen}`
  await sql`vacuum resource`
  await sql`update work set due_at = 'infinity', rank = 'infinity', kept = false`
  await sql`update work set due_at = now(), rank = now() where ${chosen}`
  const { during } = await counting(url, sql, "1 hour")
  const seconds = await timed(() => during(() => poll(async () => !(await busy(sql, "Cache")))))
  return changes / seconds
}

/** The floor: two statements for each batch, driven from Node by postgres.js, two batches under way. */
const bareRate = async (sql: postgres.Sql, resources: number): Promise<number> => {
  await makeDue(sql)
  const lane = async () => {
    for (;;) {
      const rows = await sql<Array<{ uid: string; token: string }>>`
        update work w set lease_token = nextval('lease_token'), lease_until = now() + interval '30 s',
          due_at = now() + interval '30 s', rank = now() + interval '90 s'
        from (select org_id, uid from work where kind = 'Cache' and rank <= now() and due_at <= now()
          order by rank limit 500 for update skip locked) due
        where w.org_id = due.org_id and w.uid = due.uid
        returning w.uid, w.lease_token::text as token`
      if (rows.length === 0) return
      await sql`
        update work w set lease_token = null, lease_until = null, due_at = now() + interval '1 h', rank = now() + interval '1 h'
        from unnest(${rows.map((row) => row.uid)}::uuid[], ${rows.map((row) => row.token)}::bigint[]) l(uid, token)
        where w.org_id = (select org_id from work limit 1) and w.uid = l.uid and w.lease_token = l.token`
    }
  }
  const seconds = await timed(() => Promise.all([lane(), lane()]))
  return resources / seconds
}

const graphileRate = async (url: string, jobs: number): Promise<number> => {
  let done = 0
  const runner = await run({
    connectionString: url,
    concurrency: 24,
    taskList: {
      noop: () => {
        done++
      }
    },
    noHandleSignals: true,
    // A line for each job would cost it more than the job.
    logger: new Logger(() => () => {}),
    preset: {
      worker: {
        connectionString: url,
        maxPoolSize: 10,
        concurrentJobs: 24,
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        localQueue: { size: 500 },
        pollInterval: 2_000
      }
    }
  })
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    // Warm first, as a server that has run for a while.
    await sql`select graphile_worker.add_job('noop') from generate_series(1, 1000)`
    await poll(async () => done >= 1_000)
    done = 0
    await sql`select graphile_worker.add_jobs(array(select json_populate_record(null::graphile_worker.job_spec, '{"identifier": "noop", "payload": {}}') from generate_series(1, ${jobs})))`
    const seconds = await timed(() => poll(async () => done >= jobs))
    return jobs / seconds
  } finally {
    await runner.stop()
    await sql.end()
  }
}

export const noop = async (url: string): Promise<ReadonlyArray<Figure>> => {
  await Effect.runPromise(migrate(Redacted.make(url)))
  const sql = postgres(url, { max: 4, onnotice: () => {} })
  await seed(sql, count)
  const looks: Array<number> = []
  const changed: Array<number> = []
  const bare: Array<number> = []
  const graphile: Array<number> = []
  for (let round = 0; round < 6; round++) {
    const rates = [
      await bareRate(sql, count),
      await lookRate(url, sql),
      await changeRate(url, sql),
      await graphileRate(url, count)
    ] as const
    await sql`vacuum analyze work`
    await sql`vacuum analyze resource`
    // The first one is for the compilers of Node, as in a process that has run for a while.
    if (round === 0) continue
    bare.push(rates[0])
    looks.push(rates[1])
    changed.push(rates[2])
    graphile.push(rates[3])
  }
  await sql.end()
  const [l, c, b, g] = [median(looks), median(changed), median(bare), median(graphile)]
  return [
    { name: "looks that find nothing new", value: l, unit: "/s", note: looks.map(Math.round).join(" ") },
    {
      name: "reconciles that record a change",
      value: c,
      unit: "/s",
      note: changed.map(Math.round).join(" ")
    },
    {
      name: "graphile-worker no-op jobs (tuned)",
      value: g,
      unit: "/s",
      note: graphile.map(Math.round).join(" ")
    },
    { name: "bare lease SQL from Node", value: b, unit: "/s", note: bare.map(Math.round).join(" ") },
    { name: "looks / graphile-worker", value: l / g, unit: "x", aim: ">= 3" },
    { name: "changes / graphile-worker", value: c / g, unit: "x", aim: ">= 1" },
    { name: "changes / bare lease SQL", value: c / b, unit: "x", aim: ">= 0.6" }
  ]
}
