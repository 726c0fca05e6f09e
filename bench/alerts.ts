/**
 * The evaluation of 5,000 alerts of 200 projects over 2,000 resources with all signals of theirs: a round in which nothing
 * changes, one in which all begin to fire and every webhook is told, and one of a single project whose 1,000 alerts, the most
 * that it may have, watch all of its 2,000 resources. Held against a scan that merely reads the same rows.
 */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { measurements, signalNames } from "#schemas/signal.ts"
import { evaluate } from "#src/alerts/evaluate.ts"
import { Db } from "#src/store/Db.ts"
import { migrate } from "#src/store/migrate.ts"
import { type Figure, median } from "./figures.ts"

const names = signalNames.filter((name) => measurements[name].kinds.includes("Cache"))

interface Size {
  readonly organizations: number
  readonly projects: number
  readonly alerts: number
  readonly resources: number
}

const seed = async (sql: postgres.Sql, { organizations, projects, alerts, resources }: Size) => {
  await sql`truncate organization, resource cascade`
  await sql`
    with orgs as (
      insert into organization (id, name, slug, billing_status)
      select gen_random_uuid(), 'bench', 'bench-' || i, 'active' from generate_series(1, ${organizations}::int) i
      returning id
    ), turns as (
      insert into alert_turn (org_id) select id from orgs
    ), hooks as (
      insert into webhook (org_id, id, url, events, key_id, sealed)
      select id, gen_random_uuid(), 'https://hooks.example.test/', '{alert.firing,alert.resolved}', 'k', '\\x00' from orgs
    ), places as materialized (
      select o.id as org_id, gen_random_uuid() as project from orgs o cross join generate_series(1, ${projects}::int)
    ), rules as (
      insert into alert (org_id, uid, project_id, name, config, threshold, fence)
      select p.org_id, gen_random_uuid(), p.project, 'alert ' || i, jsonb_build_object('enabled', true,
        'severity', 'warning', 'cooldownSeconds', 300, 'channels', '[{"kind": "webhook", "destination": null}]'::jsonb,
        'scope', '{"environment": "production", "database": null, "queue": null, "cron": null}'::jsonb,
        'condition', jsonb_build_object('signal', (${names}::text[])[1 + i % ${names.length}::int], 'operator', 'gte', 'threshold', null,
          'durationSeconds', 0)), 90, 1
      from places p cross join generate_series(1, ${alerts}::int) i
    )
    insert into resource (org_id, uid, kind, project_id, environment, name, spec, managed_by)
    select p.org_id, gen_random_uuid(), 'Cache', p.project, 'production', 'cache-' || i, '{}', 'api'
    from places p cross join generate_series(1, ${resources}::int) i`
  await sql`
    insert into metric_now (org_id, uid, source, at, values, kept)
    select org_id, uid, 'host', now(), (select jsonb_object_agg(name, 10) from unnest(${names}::text[]) name), true
    from resource`
  await sql`vacuum analyze`
}

export const alerts = async (url: string): Promise<ReadonlyArray<Figure>> => {
  await Effect.runPromise(migrate(Redacted.make(url)))
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const timed = async <A>(run: () => Promise<A>) => {
    const before = performance.now()
    const result = await run()
    return { seconds: (performance.now() - before) / 1_000, result }
  }
  const scan = async () =>
    (await timed(() => sql`select count(*), sum((values ->> 'cpu.percent')::float8) from metric_now`)).seconds
  const rounds = async (size: Size, times: number) => {
    await seed(sql, size)
    const round = Effect.gen(function* () {
      yield* Effect.promise(
        () => sql`update alert_turn set looked_at = now() - interval '15 seconds', due_at = now()`
      )
      // What is measured between rounds is new, and not what a round costs.
      yield* Effect.promise(() => sql`update metric_now set at = now()`)
      const db = yield* Db
      return yield* Effect.promise(() =>
        timed(() => Effect.runPromise(Effect.provideService(evaluate, Db, db)))
      )
    })
    return Effect.runPromise(
      Effect.gen(function* () {
        // The first finds values for the first time.
        yield* round
        const quiet = yield* Effect.replicateEffect(round, times)
        yield* Effect.promise(
          () => sql`update metric_now set values = (select jsonb_object_agg(key, 95) from jsonb_each(values))`
        )
        const { seconds, result } = yield* round
        return { quiet: median(quiet.map(({ seconds }) => seconds)), firing: seconds, told: result.told }
      }).pipe(Effect.provide(Db.layer({ url: Redacted.make(url) })))
    )
  }
  const many = await rounds({ organizations: 20, projects: 10, alerts: 25, resources: 10 }, 5)
  if (many.told !== 5_000) throw new Error(`${many.told} alerts were told`)
  const peer = median([await scan(), await scan(), await scan()])
  const crowded = await rounds({ organizations: 1, projects: 1, alerts: 1_000, resources: 2_000 }, 3)
  await sql.end()
  return [
    {
      name: "5,000 alerts, nothing changes",
      value: many.quiet,
      unit: "s",
      aim: "<= 1",
      note: `${Math.round(many.quiet / peer)} x a scan`
    },
    { name: "5,000 alerts, all begin to fire", value: many.firing, unit: "s", aim: "<= 1" },
    { name: "1,000 alerts over the same 2,000 resources", value: crowded.quiet, unit: "s", aim: "<= 1" }
  ]
}
