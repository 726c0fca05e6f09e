/** `svc webhooks`: who is told of what happens, and whether it arrived. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, yes } from "#src/cli/flags.ts"
import { json, out, paint, say, table } from "#src/cli/output.ts"
import { itemsOf } from "#src/cli/pages.ts"
import { inOrganization, resourceCommands } from "#src/cli/resource-commands.ts"
import { eventTypes } from "./event-types.ts"

const { command, on, ls, update } = resourceCommands({
  scope: inOrganization,
  noun: "webhook",
  plural: "webhooks",
  argument: Argument.String("webhook").pipe(Argument.withDescription("Its id or URL")),
  list: ({ asMember }, at) => asMember.webhooks.list(at),
  nameOf: ({ url }) => url,
  one: ({ params }, { id }) => ({ params: { ...params, webhookId: id } })
})

const event = Flag.Literals("event", eventTypes).pipe(
  Flag.withDescription("What to be told of; may be given several times"),
  Flag.atLeast(0)
)

const state = (hook: { readonly enabled: boolean; readonly failingSince: string | null }) => {
  if (!hook.enabled) return paint("red", "disabled")
  return hook.failingSince === null
    ? paint("green", "on")
    : paint("yellow", `failing since ${hook.failingSince}`)
}

const list = ls({
  columns: {
    WEBHOOK: ({ id }) => id,
    URL: ({ url }) => url,
    EVENTS: ({ events }) => events.join(","),
    STATE: state
  },
  empty: () => "Nobody is told of anything"
})

const create = command(
  "create",
  { url: Argument.String("url").pipe(Argument.withDescription("https://...")), event },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const payload = { url: flags.url, events: flags.event.length === 0 ? eventTypes : flags.event }
      const made = yield* call(client.asMember.webhooks.create({ ...(yield* at), payload, headers: {} }))
      if (asJson) return yield* json(made)
      yield* say(`${made.url} is told of ${made.events.join(", ")}. The signing secret is shown this once:`)
      yield* out(made.secret)
    })
).pipe(
  Command.withDescription("Have events sent to an HTTPS address (all of them unless --event names some)")
)

const change = update({
  settings: {
    url: Flag.String("url").pipe(Flag.optional),
    events: event,
    enabled: Flag.Boolean("enable").pipe(
      Flag.withDescription("Send to it (again); --no-enable stops, and gives up what waits"),
      Flag.optional
    )
  },
  waits: false,
  payload: (settings) => Effect.succeed(settings),
  send: ({ asMember }, request) => asMember.webhooks.update(request),
  changed: (answer) => answer,
  say: (hook) => `${hook.url} (${hook.events.join(", ")}): ${state(hook)}`
}).pipe(Command.withDescription("Change address or events of a webhook, or switch it"))

const rm = on("rm", { yes }, ({ name, one }, { client, json: asJson, flags }) =>
  Effect.gen(function* () {
    yield* confirmName(`${name} is told of nothing any more.`, name, flags.yes)
    const done = yield* call(client.asMember.webhooks.delete(one))
    yield* asJson ? json(done) : say("Deleted")
  })
).pipe(Command.withAlias("delete"), Command.withDescription("Delete a webhook"))

const test = on("test", {}, ({ one: { params } }, { client: { asMember }, json: asJson }) =>
  Effect.gen(function* () {
    const { id } = yield* call(asMember.webhooks.test({ params, headers: {} }))
    const look = Effect.gen(function* () {
      const { items } = yield* call(asMember.webhooks.listDeliveries({ params, query: { limit: 20 } }))
      return items.find((delivery) => delivery.id === id)
    })
    // As long as one try takes.
    for (let looks = 0; looks < 40; looks++) {
      const delivery = yield* look
      const [tried] = delivery?.attempts ?? []
      if (delivery !== undefined && tried !== undefined) {
        if (asJson) yield* json(delivery)
        if (delivery.state !== "delivered") return yield* failure(tried.error ?? "It did not arrive")
        return yield* say(`It arrived: ${tried.statusCode} after ${tried.durationMs} ms`)
      }
      yield* Effect.sleep("500 millis")
    }
    return yield* failure("Nobody has tried to send it within 20 s", exitCodes.timeout)
  })
).pipe(Command.withDescription("Send an event that tells of nothing, and say whether it arrived"))

const deliveries = on(
  "deliveries",
  {
    limit: Flag.Int("limit").pipe(Flag.withDescription("How many, from the newest"), Flag.withDefault(20)),
    state: Flag.Literals("state", ["waiting", "delivered", "failed"]).pipe(Flag.optional)
  },
  ({ one: { params } }, { client: { asMember }, json: asJson, flags }) =>
    Effect.gen(function* () {
      const filter = Option.isSome(flags.state) ? { state: flags.state.value } : {}
      const items = yield* itemsOf(
        (page) => call(asMember.webhooks.listDeliveries({ params, query: { ...filter, ...page } })),
        flags.limit
      )
      if (asJson) return yield* json(items)
      yield* out(
        table(
          ["DELIVERY", "EVENT", "HAPPENED", "STATE", "TRIES", "LAST"],
          items.map((delivery) => {
            const last = delivery.attempts.at(-1)
            const next = delivery.nextAttemptAt === null ? "" : `, next ${delivery.nextAttemptAt}`
            return [
              delivery.id,
              delivery.event.type,
              delivery.event.createdAt,
              delivery.state,
              String(delivery.attempts.length),
              last === undefined ? "" : `${last.error ?? last.statusCode}${next}`
            ]
          })
        )
      )
    })
).pipe(Command.withDescription("List what was sent, and what became of it"))

const redeliver = on(
  "redeliver",
  { delivery: Argument.String("delivery") },
  ({ one }, { client, json: asJson, flags }) =>
    Effect.gen(function* () {
      const params = { ...one.params, deliveryId: flags.delivery }
      const again = yield* call(client.asMember.webhooks.redeliver({ params, headers: {} }))
      yield* asJson ? json(again) : say(`The event ${again.event.id} is sent again as ${again.id}`)
    })
).pipe(Command.withDescription("Send the event of a delivery again"))

const rotateSecret = on(
  "rotate-secret",
  {
    overlap: Flag.Int("overlap").pipe(
      Flag.withDescription("Seconds that the previous secret signs as well; 0 if somebody else knows it"),
      Flag.withDefault(86_400)
    )
  },
  ({ one }, { client, json: asJson, flags }) =>
    Effect.gen(function* () {
      const payload = { overlapSeconds: flags.overlap }
      const rotated = yield* call(client.asMember.webhooks.rotateSecret({ ...one, payload, headers: {} }))
      if (asJson) return yield* json(rotated)
      yield* say(
        `The previous secret signs as well until ${rotated.previousValidUntil}. The new one is shown this once:`
      )
      yield* out(rotated.secret)
    })
).pipe(Command.withDescription("Replace the signing secret; it is printed once, alone on standard output"))

export const webhooks = Command.make("webhooks").pipe(
  Command.withDescription("Who is told of what happens"),
  Command.withSubcommands([list, create, change, rm, test, deliveries, redeliver, rotateSecret])
)
