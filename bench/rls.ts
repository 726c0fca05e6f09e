/**
 * What row-level security costs: the statements of requests as `svc_api`, whom the policies hold, against the same
 * statements as a role that they do not apply to. In turns within one run, on one store of 10,000 resources.
 *
 * The ratio is one of processor time (Postgres and this process), which says the same on a busy machine as on an idle
 * one; the ratio of rates stands beside it.
 */
import { randomUUIDv7 } from "node:crypto"
import * as fs from "node:fs"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Reactivity from "effect/reactivity/Reactivity"
import * as Stream from "effect/Stream"
import postgres from "postgres"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { migrate } from "#src/store/migrate.ts"
import { Resources } from "#src/store/Resources.ts"
import { actor, cacheChange, makeProject } from "#test/setup/fixtures.ts"
import { type Figure, median } from "./figures.ts"

const organizations = 50
const resourcesEach = 200
const rounds = 24
const atOnce = 16
const free = "bench_free"

/** The store as requests use it, under a role. */
const storeAs = (url: Redacted.Redacted, role: string) => {
  const client = Effect.map(
    PgClient.make({
      url,
      applicationName: role,
      minConnections: 8,
      maxConnections: 8,
      multiplex: true,
      // As the program's own pools.
      startupParameters: { role, random_page_cost: "1.1", timezone: "UTC" }
    }),
    (sql) => Db.of({ api: sql, engine: sql, notifications: () => Stream.never })
  )
  return Resources.layer.pipe(
    Layer.provideMerge(KeyRing.layerEphemeral),
    Layer.provideMerge(Layer.effect(Db, client)),
    Layer.provide(Reactivity.layer)
  )
}

type Operation = (n: number) => Effect.Effect<unknown, unknown, Resources>

/** Microseconds of processor time that the connections of a role and this process have used. */
const cpuOf = (backends: ReadonlyArray<number>) => {
  const { user, system } = process.cpuUsage()
  return backends.reduce((sum, pid) => {
    // In nanoseconds: finer than the ticks of /proc/<pid>/stat.
    const [nanoseconds] = fs.readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")
    return sum + Number(nanoseconds) / 1_000
  }, user + system)
}

export const rls = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const secret = Redacted.make(url)
  await Effect.runPromise(migrate(secret))
  const admin = postgres(url, { max: 1, onnotice: () => {} })
  await admin.unsafe(`create role ${free} nologin bypassrls in role svc_engine`)
  try {
    return await Effect.runPromise(measure(secret, admin))
  } finally {
    await admin.end()
  }
}

const measure = Effect.fnUntraced(function* (url: Redacted.Redacted, admin: postgres.Sql) {
  const held = yield* Layer.build(storeAs(url, "svc_api"))
  const unheld = yield* Layer.build(storeAs(url, free))
  const orgs: Array<{ id: string; projectId: string; production: string; uids: ReadonlyArray<string> }> = []
  for (let i = 0; i < organizations; i++) {
    const id = randomUUIDv7()
    yield* Effect.promise(
      () =>
        admin`insert into organization (id, name, slug, billing_status) values (${id}, 'B', ${`b-${i}`}, 'active')`
    )
    const place = yield* Effect.provide(makeProject(id, "bench"), held)
    const changes = Array.from({ length: resourcesEach - 3 }, (_, n) => cacheChange(place, `cache-${n}`))
    yield* Effect.provide(
      Effect.flatMap(Resources, (resources) => resources.write(id, changes, actor)),
      held
    )
    orgs.push({ id, ...place, uids: changes.map(({ uid }) => uid) })
  }
  yield* Effect.promise(() => admin.unsafe("vacuum analyze"))

  const backendsOf = (role: string) =>
    Effect.map(
      Effect.promise(
        () => admin<Array<{ pid: number }>>`select pid from pg_stat_activity where application_name = ${role}`
      ),
      (rows) => rows.map(({ pid }) => pid)
    )
  const stores = [
    { store: held, backends: yield* backendsOf("svc_api") },
    { store: unheld, backends: yield* backendsOf(free) }
  ] as const
  const orgOf = (n: number) => orgs[n % organizations]!
  const uidOf = (n: number) => orgOf(n).uids[Math.floor(n / organizations) % (resourcesEach - 3)] ?? ""
  let fresh = 0
  const operations: ReadonlyArray<readonly [name: string, count: number, run: Operation]> = [
    [
      "get",
      1_000,
      (n) =>
        Effect.flatMap(Resources, (resources) => resources.get(orgOf(n).id, uidOf(n))).pipe(
          Effect.filterOrFail(Option.isSome)
        )
    ],
    [
      "list of 20",
      300,
      (n) =>
        Effect.flatMap(Resources, (resources) => resources.list(orgOf(n).id, {}, 20)).pipe(
          Effect.filterOrFail((rows) => rows.length === 20)
        )
    ],
    [
      "create",
      200,
      (n) =>
        Effect.flatMap(Resources, (resources) =>
          resources.write(orgOf(n).id, [cacheChange(orgOf(n), `fresh-${fresh++}`)], actor)
        )
    ],
    [
      "update",
      200,
      (n) =>
        Effect.flatMap(Resources, (resources) => {
          const { spec } = cacheChange(orgOf(n), "any", { credentialVersion: fresh++ })
          return resources.write(orgOf(n).id, [{ action: "update", uid: uidOf(n), spec }], actor)
        })
    ]
  ]
  const figures: Array<Figure> = []
  for (const [name, count, run] of operations) {
    const spend = Effect.fnUntraced(function* ({ store, backends }: (typeof stores)[number], from: number) {
      const before = cpuOf(backends)
      const startedAt = performance.now()
      const all = Array.from({ length: count }, (_, i) => run(from + i * 7))
      yield* Effect.provide(Effect.all(all, { concurrency: atOnce, discard: true }), store)
      return { wall: performance.now() - startedAt, cpu: cpuOf(backends) - before }
    })
    const samples: Array<{ readonly cpu: number; readonly wall: number; readonly rate: number }> = []
    for (let round = -2; round < rounds; round++) {
      // Who goes first changes, so that neither always finds what the other warmed.
      const [one, other] = round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)
      const first = yield* spend(stores[one], round * 13 + 100)
      const second = yield* spend(stores[other], round * 13 + 100)
      if (round < 0) continue
      const [under, without] = one === 0 ? [first, second] : [second, first]
      samples.push({
        cpu: without.cpu / under.cpu,
        wall: without.wall / under.wall,
        rate: (count / under.wall) * 1_000
      })
    }
    const of = (part: "cpu" | "wall" | "rate") => median(samples.map((sample) => sample[part]))
    figures.push({
      name: `${name}, without policies / under them`,
      value: of("cpu"),
      unit: "x",
      aim: ">= 0.9",
      note: `processor time; rates ${of("wall").toFixed(2)} x, ${Math.round(of("rate"))}/s under policies`
    })
  }
  return figures
}, Effect.scoped)
