/**
 * The ledger of AI gateways: pairs of reserving and settling on one gateway by 50 callers, in turn with the plainest way
 * to keep the same books, which is a durable statement for each reservation and each settlement. Both end with exact sums.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { Ledger } from "#src/ai-gateways/Ledger.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { migrate } from "#src/store/migrate.ts"
import { Resources } from "#src/store/Resources.ts"
import { callOf, newGateway, outcomeOf } from "#test/ai-gateways/world.ts"
import { type Figure, median } from "./figures.ts"

const callers = 50
const roundMs = 4_000
const rounds = 3

/** Pairs a second, and what each costs this process: the machine may have other work. */
const measured = async (pair: (caller: number) => Promise<unknown>) => {
  let pairs = 0
  const before = process.cpuUsage()
  const start = performance.now()
  const end = start + roundMs
  const caller = async (_: unknown, index: number) => {
    while (performance.now() < end) {
      await pair(index)
      pairs++
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
  const { user, system } = process.cpuUsage(before)
  return { rate: (pairs / (performance.now() - start)) * 1_000, cpuMs: (user + system) / 1_000 / pairs }
}

export const aiBudget = async (url: string): Promise<ReadonlyArray<Figure>> => {
  await Effect.runPromise(migrate(Redacted.make(url)))
  const sql = postgres(url, { max: 10, onnotice: () => {} })
  const store = () =>
    ManagedRuntime.make(
      Layer.mergeAll(Ledger.layer, Resources.layer).pipe(
        Layer.provide(KeyRing.layerEphemeral),
        Layer.provideMerge(Db.layer({ url: Redacted.make(url) })),
        Layer.provide(Logger.layer([])),
        Layer.fresh
      )
    )
  // As two processes would, with connections and groups of their own.
  const processes = [store(), store()]
  try {
    const [first] = processes
    const gateway = await first!.runPromise(newGateway(1_000_000))
    const ledgers = await Promise.all(processes.map((one) => one.runPromise(Ledger)))
    const ours = (caller: number) =>
      processes[caller % 2]!.runPromise(
        Effect.scoped(
          Effect.flatMap(ledgers[caller % 2]!.reserve(callOf(gateway, 1_000)), ({ settle }) =>
            settle(outcomeOf(10))
          )
        )
      )
    await sql`create table plain_month (id int primary key, spent bigint, reserved bigint)`
    await sql`insert into plain_month values (1, 0, 0)`
    const plain = async () => {
      await sql`update plain_month set reserved = reserved + 1000 where id = 1 and spent + reserved + 1000 <= ${1e15}`
      await sql`update plain_month set reserved = reserved - 1000, spent = spent + 10 where id = 1`
    }
    type Measured = Awaited<ReturnType<typeof measured>>
    const figures: Array<{ readonly ours: Measured; readonly plain: Measured }> = []
    for (let round = 0; round < rounds; round++) {
      figures.push({ plain: await measured(plain), ours: await measured(ours) })
    }
    const [books] =
      await sql`select reserved::float8, spent::float8 = requests * 10 as exact from ai_gateway_month`
    if (books?.["reserved"] !== 0 || books["exact"] !== true) throw new Error("the books do not agree")
    const of = (pick: (figure: (typeof figures)[number]) => number) => ({
      value: median(figures.map(pick)),
      unit: "/s",
      note: figures.map((figure) => Math.round(pick(figure))).join(" ")
    })
    const [grouped, single] = [of(({ ours }) => ours.rate), of(({ plain }) => plain.rate)]
    const cpuMs = median(figures.map(({ ours }) => ours.cpuMs))
    return [
      { name: "pairs on one gateway, two processes' worth", ...grouped, aim: ">= 1,000 /s" },
      { name: "pairs with a statement for each step", ...single },
      { name: "processor of the process for a pair", value: cpuMs, unit: "ms" },
      { name: "grouped / a statement for each", value: grouped.value / single.value, unit: "x" }
    ]
  } finally {
    for (const one of processes) await one.dispose()
    await sql.end()
  }
}
