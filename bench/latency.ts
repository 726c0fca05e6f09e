/** From a change being committed to its reconcile starting, while a full resync of 10,000 resources runs. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { defaults, EngineOptions } from "#src/engine/options.ts"
import { Registry } from "#src/engine/Reconciler.ts"
import * as Worker from "#src/engine/Worker.ts"
import { Db } from "#src/store/Db.ts"
import { migrate } from "#src/store/migrate.ts"
import * as Work from "#src/store/Work.ts"
import { makeWorld, toyLayer } from "#test/setup/toy-kind.ts"
import { type Figure, median, spread } from "./figures.ts"
import { seed } from "./noop.ts"

const resources = 10_000
const rounds = 5
/** Changes of one round. */
const samples = 100

export const latency = async (url: string): Promise<ReadonlyArray<Figure>> => {
  await Effect.runPromise(migrate(Redacted.make(url)))
  const sql = postgres(url, { max: 4, onnotice: () => {} })
  await seed(sql, resources)
  const uids = (await sql<Array<{ uid: string }>>`select uid::text from work limit ${samples}`).map(
    ({ uid }) => uid
  )
  const started = new Map<string, (at: number) => void>()
  const world = makeWorld()
  world.behave = (_, { uid, generation }) =>
    Effect.sync(() => {
      world.log.length = 0
      const waiting = started.get(uid)
      if (waiting !== undefined && generation > 1) {
        started.delete(uid)
        waiting(performance.now())
      }
    })
  for (const { uid } of await sql<Array<{ uid: string }>>`select uid::text from work`)
    world.things.set(uid, 1)
  const engine = Worker.layer.pipe(
    Layer.provide(toyLayer(world, { driftInterval: "1 hour", concurrency: 512 })),
    Layer.provide(Registry.layer),
    Layer.provide(Work.layer),
    Layer.provide(Work.signal),
    Layer.provide(Db.layer({ url: Redacted.make(url) })),
    Layer.provide(Layer.succeed(EngineOptions, { ...defaults, orgShare: 1 }))
  )
  /** Keeps half of everything due, in small statements: locks of a large one would be what is measured. */
  const resync = async (going: () => boolean) => {
    while (going()) {
      const [row] = await sql<[{ due: number }]>`select count(*)::int as due from work where due_at <= now()`
      if (row.due < resources / 2)
        await sql`update work set due_at = now(), rank = now() + interval '60 s' where (org_id, uid) in (
          select org_id, uid from work where lease_token is null and due_at > now() limit 500 for update skip locked)`
      else await new Promise((resolve) => setTimeout(resolve, 5))
    }
  }
  const measure = async (busy: boolean) => {
    const times: Array<number> = []
    let going = busy
    const resynced = resync(() => going)
    for (const uid of uids) {
      await new Promise((resolve) => setTimeout(resolve, 10 * Math.random()))
      const start = new Promise<number>((resolve) => started.set(uid, resolve))
      await sql.begin(async (tx) => {
        await tx`update resource set generation = generation + 1, spec = '{"size": 1}' where uid = ${uid}`
        await tx`update work set again = true, due_at = case when lease_until > now() then due_at else now() end, rank = case when lease_until > now() then rank else now() end where uid = ${uid}`
        await tx`select pg_notify('svc_work', '')`
      })
      const committed = performance.now()
      times.push(Math.max(0, (await start) - committed))
    }
    going = false
    await resynced
    times.sort((a, b) => a - b)
    const at = (q: number) => times[Math.floor(times.length * q)] ?? 0
    return { p50: at(0.5), p99: at(0.99) }
  }
  type Times = Awaited<ReturnType<typeof measure>>
  const quiet: Array<Times> = []
  const busy: Array<Times> = []
  await Effect.runPromise(
    Effect.scoped(
      Effect.andThen(
        Layer.build(engine),
        Effect.promise(async () => {
          // The first one is for the compilers of Node.
          await measure(true)
          for (let round = 0; round < rounds; round++) {
            quiet.push(await measure(false))
            busy.push(await measure(true))
          }
        })
      )
    )
  )
  await sql.end()
  const figure = (name: string, of: ReadonlyArray<Times>, at: keyof Times, aim?: string): Figure => {
    const values = of.map((times) => times[at])
    return {
      name: `change to start${name}, ${at}`,
      value: median(values),
      unit: "ms",
      ...(aim === undefined ? {} : { aim }),
      note: spread(values)
    }
  }
  return [
    figure("", quiet, "p50", "< 2"),
    figure("", quiet, "p99"),
    figure(" under resync", busy, "p50", "< 5"),
    figure(" under resync", busy, "p99", "< 25")
  ]
}
