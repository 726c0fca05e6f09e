/** `svc webhooks`: who is told of what happens, and whether it arrived. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { eventTypes } from "#src/webhooks/event-types.ts"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, confirmName, connection, online, yes } from "./flags.ts"
import { json, out, paint, say, table } from "./output.ts"

const which = Argument.String("webhook").pipe(Argument.withDescription("Its id or URL"))
const event = Flag.Literals("event", eventTypes).pipe(
  Flag.withDescription("What to be told of; may be given several times"),
  Flag.atLeast(0)
)

const list = Effect.gen(function* () {
  const { asMember, org } = yield* Client
  return yield* call(asMember.webhooks.list({ params: { orgId: org } }))
})

/** The one that somebody names. */
const find = Effect.fnUntraced(function* (name: string) {
  const { org } = yield* Client
  const found = (yield* list).find(({ id, url }) => id === name || url === name)
  if (found === undefined) {
    return yield* failure(`There is no webhook "${name}" in "${org}"`, exitCodes.notFound)
  }
  return { ...found, params: { orgId: org, webhookId: found.id } }
})

const state = (hook: { readonly enabled: boolean; readonly failingSince: string | null }) => {
  if (!hook.enabled) return paint("red", "disabled")
  return hook.failingSince === null
    ? paint("green", "on")
    : paint("yellow", `failing since ${hook.failingSince}`)
}

const ls = Command.make("ls", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const hooks = yield* list
      if (flags.json) return yield* json(hooks)
      if (hooks.length === 0) return yield* say("Nobody is told of anything")
      yield* out(
        table(
          ["WEBHOOK", "URL", "EVENTS", "STATE"],
          hooks.map((hook) => [hook.id, hook.url, hook.events.join(","), state(hook)])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List webhooks"))

const create = Command.make(
  "create",
  {
    ...connection,
    url: Argument.String("url").pipe(Argument.withDescription("https://...")),
    event,
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const events = flags.event.length === 0 ? eventTypes : flags.event
        const made = yield* call(
          asMember.webhooks.create({
            params: { orgId: org },
            payload: { url: flags.url, events },
            headers: {}
          })
        )
        if (flags.json) return yield* json(made)
        yield* say(`${made.url} is told of ${made.events.join(", ")}. The signing secret is shown this once:`)
        yield* out(made.secret)
      })
    )
).pipe(
  Command.withDescription("Have events sent to an HTTPS address (all of them unless --event names some)")
)

const update = Command.make(
  "update",
  {
    ...connection,
    which,
    url: Flag.String("url").pipe(Flag.optional),
    event,
    enable: Flag.Boolean("enable").pipe(
      Flag.withDescription("Send to it (again); --no-enable stops, and gives up what waits"),
      Flag.optional
    ),
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember } = yield* Client
        const payload = {
          ...(Option.isSome(flags.url) ? { url: flags.url.value } : {}),
          ...(flags.event.length > 0 ? { events: flags.event } : {}),
          ...(Option.isSome(flags.enable) ? { enabled: flags.enable.value } : {})
        }
        if (Object.keys(payload).length === 0) {
          return yield* failure(
            "Say what to change: --url, --event, --enable or --no-enable",
            exitCodes.usage
          )
        }
        const { params } = yield* find(flags.which)
        const changed = yield* call(asMember.webhooks.update({ params, payload }))
        yield* flags.json
          ? json(changed)
          : say(`${changed.url} (${changed.events.join(", ")}): ${state(changed)}`)
      })
    )
).pipe(Command.withDescription("Change address or events of a webhook, or switch it"))

const rm = Command.make("rm", { ...connection, which, yes, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember } = yield* Client
      const { url, params } = yield* find(flags.which)
      yield* confirmName(`${url} is told of nothing any more.`, url, flags.yes)
      const done = yield* call(asMember.webhooks.delete({ params }))
      yield* flags.json ? json(done) : say("Deleted")
    })
  )
).pipe(Command.withAlias("delete"), Command.withDescription("Delete a webhook"))

const test = Command.make("test", { ...connection, which, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember } = yield* Client
      const { params } = yield* find(flags.which)
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
          if (flags.json) yield* json(delivery)
          if (delivery.state !== "delivered") return yield* failure(tried.error ?? "It did not arrive")
          return yield* say(`It arrived: ${tried.statusCode} after ${tried.durationMs} ms`)
        }
        yield* Effect.sleep("500 millis")
      }
      return yield* failure("Nobody has tried to send it within 20 s", exitCodes.timeout)
    })
  )
).pipe(Command.withDescription("Send an event that tells of nothing, and say whether it arrived"))

const deliveries = Command.make(
  "deliveries",
  {
    ...connection,
    which,
    limit: Flag.Int("limit").pipe(Flag.withDescription("How many, from the newest"), Flag.withDefault(20)),
    state: Flag.Literals("state", ["waiting", "delivered", "failed"]).pipe(Flag.optional),
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember } = yield* Client
        const { params } = yield* find(flags.which)
        const filter = Option.isSome(flags.state) ? { state: flags.state.value } : {}
        const read = (limit: number, cursor: string | null) =>
          call(
            asMember.webhooks.listDeliveries({
              params,
              query: { ...filter, limit: Math.min(limit, 100), ...(cursor === null ? {} : { cursor }) }
            })
          )
        let page = yield* read(flags.limit, null)
        const items = [...page.items]
        while (items.length < flags.limit && page.nextCursor !== null) {
          page = yield* read(flags.limit - items.length, page.nextCursor)
          items.push(...page.items)
        }
        if (flags.json) return yield* json(items)
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
    )
).pipe(Command.withDescription("List what was sent, and what became of it"))

const redeliver = Command.make(
  "redeliver",
  { ...connection, which, delivery: Argument.String("delivery"), json: asJson },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember } = yield* Client
        const { params } = yield* find(flags.which)
        const again = yield* call(
          asMember.webhooks.redeliver({ params: { ...params, deliveryId: flags.delivery }, headers: {} })
        )
        yield* flags.json ? json(again) : say(`The event ${again.event.id} is sent again as ${again.id}`)
      })
    )
).pipe(Command.withDescription("Send the event of a delivery again"))

const rotateSecret = Command.make(
  "rotate-secret",
  {
    ...connection,
    which,
    overlap: Flag.Int("overlap").pipe(
      Flag.withDescription("Seconds that the previous secret signs as well; 0 if somebody else knows it"),
      Flag.withDefault(86_400)
    ),
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember } = yield* Client
        const { params } = yield* find(flags.which)
        const payload = { overlapSeconds: flags.overlap }
        const rotated = yield* call(asMember.webhooks.rotateSecret({ params, payload, headers: {} }))
        if (flags.json) return yield* json(rotated)
        yield* say(
          `The previous secret signs as well until ${rotated.previousValidUntil}. The new one is shown this once:`
        )
        yield* out(rotated.secret)
      })
    )
).pipe(Command.withDescription("Replace the signing secret; it is printed once, alone on standard output"))

export const webhooks = Command.make("webhooks").pipe(
  Command.withDescription("Who is told of what happens"),
  Command.withSubcommands([ls, create, update, rm, test, deliveries, redeliver, rotateSecret])
)
