/**
 * Customer payments: events of Stripe that one process verifies and stores durably, in turn with a durable statement for
 * each, and how long after its arrival an event is in the projection at 100 events a second. Stripe is a server that stands
 * in for it, in this same process.
 */
import { randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { paymentCredentialField } from "#schemas/customer-payments.ts"
import { AppConfig } from "#src/config.ts"
import { Connections } from "#src/payments/Connections.ts"
import { PaymentEvents } from "#src/payments/PaymentEvents.ts"
import { Processor } from "#src/payments/Processor.ts"
import { Projections } from "#src/payments/Projections.ts"
import * as work from "#src/payments/work.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { migrate } from "#src/store/migrate.ts"
import { Resources } from "#src/store/Resources.ts"
import { connectionChange } from "#test/payments/connection.ts"
import { type StandIn, stripeStandIn } from "#test/payments/stripe/stand-in.ts"
import { allScopes } from "#test/payments/world.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { type Figure, median } from "./figures.ts"

const callers = 50
const roundMs = 4_000
const rounds = 3
const perSecond = 100
const lagSeconds = 15
const objects = 200

class Stripe extends Context.Service<Stripe, StandIn>()("bench/Stripe") {}

const services = (url: string) =>
  Layer.unwrap(
    Effect.map(stripeStandIn, (stripe) =>
      Layer.mergeAll(Connections.layer, Projections.layer, PaymentEvents.layer, Processor.layer).pipe(
        Layer.provideMerge(Resources.layer),
        Layer.provideMerge(KeyRing.layerEphemeral),
        Layer.provideMerge(AppConfig.layerWith({}, { SVC_STRIPE_URL: stripe.url })),
        Layer.provideMerge(Db.layer({ url: Redacted.make(url) })),
        Layer.merge(Layer.succeed(Stripe, stripe))
      )
    )
  ).pipe(Layer.provide(Logger.layer([])), Layer.fresh)

const connect = Effect.gen(function* () {
  const stripe = yield* Stripe
  const { id: orgId } = yield* makeOrganization()
  const { projectId, production } = yield* makeProject(orgId, "shop")
  const uid = uuid()
  const webhookSecret = `whsec_${randomBytes(16).toString("hex")}`
  const change = {
    ...connectionChange({ projectId, production }, uid, allScopes),
    secrets: {
      [paymentCredentialField("secretKey")]: Redacted.make(stripe.key()),
      [paymentCredentialField("webhookSecret")]: Redacted.make(webhookSecret)
    }
  }
  yield* (yield* Resources).write(orgId, [change], actor)
  yield* (yield* Connections).keepSecret(
    { orgId, uid, fence: 0n },
    { secret: webhookSecret, fingerprint: "secret" }
  )
  return { orgId, uid, webhookSecret }
})

const measured = async (one: () => Promise<unknown>) => {
  let count = 0
  const before = process.cpuUsage()
  const start = performance.now()
  const caller = async () => {
    while (performance.now() < start + roundMs) {
      await one()
      count++
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
  const { user, system } = process.cpuUsage(before)
  return { rate: (count / (performance.now() - start)) * 1_000, cpuMs: (user + system) / 1_000 / count }
}

export const payments = async (url: string): Promise<ReadonlyArray<Figure>> => {
  await Effect.runPromise(migrate(Redacted.make(url)))
  const sql = postgres(url, { max: 10, onnotice: () => {} })
  const runtime = ManagedRuntime.make(services(url))
  try {
    const { orgId, uid, webhookSecret } = await runtime.runPromise(connect)
    const stripe = await runtime.runPromise(Stripe)
    const [connections, events, processor] = await runtime.runPromise(
      Effect.all([Connections, PaymentEvents, Processor])
    )
    const known = Option.getOrThrow(await runtime.runPromise(connections.webhookSecrets(uid)))
    const signed = (type: string, object: Record<string, unknown>) => {
      const payload = stripe.event(type, object)
      return { body: Buffer.from(payload), header: stripe.sign(payload, webhookSecret) }
    }
    const receive = ({ body, header }: ReturnType<typeof signed>, worked: boolean) =>
      Effect.gen(function* () {
        const event = yield* processor.verify(body, header, known.secrets)
        if (event === undefined) return yield* Effect.die(new Error("the signature does not hold"))
        const stored = yield* events.store({
          orgId,
          uid,
          processorId: event.id,
          type: event.type,
          occurred: event.created,
          object: worked ? { type: "product", id: event.data.object.id ?? "" } : undefined,
          ignored: worked ? undefined : "measured"
        })
        if (!stored) return yield* Effect.die(new Error("the connection is gone"))
      })
    const payout = { id: "po_1", object: "payout" }
    const ours = () => runtime.runPromise(receive(signed("payout.paid", payout), false))
    const single = async () => {
      const { body, header } = signed("payout.paid", payout)
      const event = await runtime.runPromise(processor.verify(body, header, known.secrets))
      await sql`insert into payment_event (org_id, id, connection_uid, processor_id, type, status, reason, occurred_at)
        values (${orgId}, ${uuid()}, ${uid}, ${event?.id ?? ""}, 'payout.paid', 'ignored', 'measured', now())
        on conflict do nothing`
    }
    await ours()
    const figures: Array<{
      ours: Awaited<ReturnType<typeof measured>>
      single: Awaited<ReturnType<typeof measured>>
    }> = []
    for (let round = 0; round < rounds; round++) {
      figures.push({ single: await measured(single), ours: await measured(ours) })
    }

    // When an event was settled, by the clock of the store.
    await sql.unsafe(`
      create table settled (id uuid primary key, lag_ms float8);
      grant insert on settled to svc_engine;
      create function note_settled() returns trigger language plpgsql as $$ begin
        insert into settled values (new.id, extract(epoch from clock_timestamp() - new.received_at) * 1000)
          on conflict do nothing;
        return null; end $$;
      create trigger note_settled after update on payment_event for each row when (new.status = 'processed')
        execute function note_settled()`)
    const products = Array.from({ length: objects }, (_, i) =>
      stripe.account().add("products", { name: `Product ${i}`, active: true })
    )
    const lags = await runtime.runPromise(
      Effect.gen(function* () {
        yield* Layer.build(work.layer)
        const start = performance.now()
        for (let sent = 0; sent < perSecond * lagSeconds; sent++) {
          const due = start + (sent * 1_000) / perSecond
          if (due > performance.now()) yield* Effect.sleep(due - performance.now())
          const product = products[Math.floor(Math.random() * objects)] ?? {}
          yield* Effect.forkScoped(receive(signed("product.updated", product), true))
        }
        for (;;) {
          const rows = yield* Effect.promise(() => sql`select lag_ms from settled order by lag_ms`)
          if (rows.length >= perSecond * lagSeconds) return rows.map((row): number => row["lag_ms"])
          if (performance.now() - start > (lagSeconds + 60) * 1_000)
            return yield* Effect.die(new Error(`only ${rows.length} events were worked on`))
          yield* Effect.sleep("100 millis")
        }
      }).pipe(Effect.scoped)
    )
    const at = (share: number) => lags[Math.min(lags.length - 1, Math.floor(lags.length * share))] ?? 0
    const of = (pick: (figure: (typeof figures)[number]) => number) => ({
      value: median(figures.map(pick)),
      unit: "/s",
      note: figures.map((figure) => Math.round(pick(figure))).join(" ")
    })
    const [grouped, each] = [of((figure) => figure.ours.rate), of((figure) => figure.single.rate)]
    return [
      { name: "events verified and stored by one process", ...grouped, aim: ">= 500 /s" },
      { name: "events with a statement for each", ...each },
      {
        name: "processor of the process for an event",
        value: median(figures.map(({ ours }) => ours.cpuMs)),
        unit: "ms"
      },
      { name: "grouped / a statement for each", value: grouped.value / each.value, unit: "x" },
      { name: `arrival to projection at ${perSecond} events/s, p50`, value: at(0.5), unit: "ms" },
      {
        name: `arrival to projection at ${perSecond} events/s, p99`,
        value: at(0.99),
        unit: "ms",
        aim: "< 2,000 ms"
      }
    ]
  } finally {
    await runtime.dispose()
    await sql.end()
  }
}
