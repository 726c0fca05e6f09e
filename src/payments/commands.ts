/** `svc payments`: the connected Stripe account, what is in it, and the events that it sends. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { PaymentScope } from "#schemas/customer-payments.ts"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, readSecret, yes } from "#src/cli/flags.ts"
import { facts, json, jsonLine, out, paint, say, table } from "#src/cli/output.ts"
import { itemsOf } from "#src/cli/pages.ts"
import { commandIn, inEnvironment } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { checkouts, customers, portal, prices, products, subscriptions } from "./object-commands.ts"
import type { EventView, PaymentsConfig } from "./views.ts"

const command = commandIn(inEnvironment)

type Config = typeof PaymentsConfig.Type
const stateOf = ({ status, statusDetail }: Config) =>
  status === "ready"
    ? paint("green", status)
    : `${paint("red", status)}${statusDetail === null ? "" : `: ${statusDetail}`}`

const showConfig = (config: Config) =>
  config.status === "not_configured"
    ? say("No Stripe account is connected; an owner connects one: svc payments connect")
    : out(
        facts([
          ["State", stateOf(config)],
          ["Key", `...${config.credentialHint}`],
          ["Webhooks to", config.webhookUrl ?? ""],
          ["Scopes", config.credentialScopes.join(", ")],
          ["Redirects to", config.allowedRedirectOrigins.join(", ")],
          ["Connected", config.connectedAt ?? ""],
          ["Changed", config.updatedAt ?? ""]
        ])
      )

const show = command("get", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const config = yield* call(client.asMember.customerPayments.getConfig(yield* at))
    yield* asJson ? json(config) : showConfig(config)
  })
).pipe(Command.withDescription("Show whether an account is connected, and how"))

const scope = Flag.Literals("scope", PaymentScope.literals).pipe(
  Flag.withDescription("An operation that is allowed; may be given several times"),
  Flag.atLeast(0)
)
const origin = Flag.String("redirect-origin").pipe(
  Flag.withDescription("https origin that customers may be sent back to; may be given several times"),
  Flag.atLeast(0)
)

/** Two lines of standard input, or two questions. */
const credentials = Effect.gen(function* () {
  const [secretKey = "", piped] = (yield* readSecret("Restricted key of Stripe (rk_...)")).split("\n")
  const webhookSecret = piped ?? (yield* readSecret("Signing secret of the webhook endpoint (whsec_...)"))
  if (secretKey === "" || webhookSecret === "")
    return yield* failure("Give the key and the signing secret, each in a line of its own", exitCodes.usage)
  return { secretKey: secretKey.trim(), webhookSecret: webhookSecret.trim() }
})

const connect = command("connect", { scope, origin }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    if (flags.scope.length === 0)
      return yield* failure("Name at least one --scope, such as products:write", exitCodes.usage)
    const payload = {
      ...(yield* credentials),
      credentialScopes: flags.scope,
      allowedRedirectOrigins: flags.origin
    }
    const config = yield* call(client.asOwner.customerPayments.connect({ ...(yield* at), payload }))
    yield* asJson ? json(config) : showConfig(config)
  })
).pipe(
  Command.withDescription(
    "Connect a Stripe account, or replace its key; both secrets come from standard input"
  ),
  Command.withExamples([
    {
      command:
        'printf \'%s\\n%s\' "$KEY" "$WEBHOOK_SECRET" | svc payments connect shop --scope products:write --redirect-origin https://shop.example.com',
      description: "Connect an account to production"
    }
  ])
)

const update = command(
  "update",
  {
    settings: { credentialScopes: scope, allowedRedirectOrigins: origin },
    webhookSecret: Flag.Boolean("webhook-secret").pipe(
      Flag.withDescription("Replace the signing secret, from standard input; the one before holds for a day"),
      Flag.withDefault(false)
    )
  },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const settings = given(flags.settings)
      if (Object.keys(settings).length === 0 && !flags.webhookSecret)
        return yield* failure("Say what to change; --help lists it", exitCodes.usage)
      const secret = flags.webhookSecret
        ? { webhookSecret: (yield* readSecret("Signing secret of the webhook endpoint (whsec_...)")).trim() }
        : {}
      const payload = { ...settings, ...secret }
      const config = yield* call(client.asOwner.customerPayments.updateConfig({ ...(yield* at), payload }))
      yield* asJson ? json(config) : showConfig(config)
    })
).pipe(Command.withDescription("Change scopes, redirect origins or the signing secret"))

const disconnect = command("disconnect", { yes }, ({ client, at, where, json: asJson, flags }) =>
  Effect.gen(function* () {
    yield* confirmName(
      `This disconnects the Stripe account of ${where.project}/${where.environment} and deletes what is stored of it here.`,
      where.project,
      flags.yes
    )
    const done = yield* call(client.asOwner.customerPayments.disconnect(yield* at))
    yield* asJson ? json(done) : say("Disconnected; what is at Stripe stays")
  })
).pipe(Command.withDescription("Disconnect the account, and delete what is stored of it here"))

type Event = typeof EventView.Type
const rowOf = (event: Event) => [
  event.id,
  event.type,
  event.processingStatus,
  event.occurredAt,
  event.receivedAt
]

const eventsLs = command(
  "ls",
  { limit: Flag.Int("limit").pipe(Flag.withDescription("How many, from the newest"), Flag.withDefault(20)) },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params, query } = yield* at
      const items = yield* itemsOf(
        (page) => call(client.asMember.customerPayments.listEvents({ params, query: { ...query, ...page } })),
        flags.limit
      )
      if (asJson) return yield* json(items)
      if (items.length === 0) return yield* say("Stripe has sent no events")
      yield* out(table(["ID", "TYPE", "STATUS", "OCCURRED", "RECEIVED"], items.map(rowOf)))
    })
).pipe(Command.withAlias("list"), Command.withDescription("List events that Stripe sent, newest first"))

const event = Argument.String("event").pipe(Argument.withDescription("Id of the event"))
const eventsGet = command("get", { event }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { params, query } = yield* at
    const found = yield* call(
      client.asMember.customerPayments.getEvent({ params: { ...params, eventId: flags.event }, query })
    )
    if (asJson) return yield* json(found)
    yield* out(
      facts([
        ["Id", found.id],
        ["Type", found.type],
        ["Status", found.processingStatus],
        ["Reason", found.reason ?? ""],
        ["Tries", String(found.attempts)],
        ["Next try", found.nextAttemptAt ?? ""],
        ["Occurred", found.occurredAt],
        ["Received", found.receivedAt]
      ])
    )
  })
).pipe(Command.withDescription("Show an event, and why it was ignored or failed"))

const eventsRetry = command("retry", { event }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { params, query } = yield* at
    const again = yield* call(
      client.asMember.customerPayments.retryEvent({
        params: { ...params, eventId: flags.event },
        query,
        headers: {}
      })
    )
    yield* asJson ? json(again) : say(`${again.type} is worked on again`)
  })
).pipe(Command.withDescription("Work on an event again that failed"))

const events = Command.make("events").pipe(
  Command.withDescription("Events that Stripe sent"),
  Command.withSubcommands([eventsLs, eventsGet, eventsRetry])
)

/** Looked at in one page: who gets more events in between sees the newest of them. */
const livePage = 100
const listen = command(
  "listen",
  {
    count: Flag.Int("count").pipe(
      Flag.withDescription("End after so many events; else with Ctrl-C"),
      Flag.optional
    )
  },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params, query } = yield* at
      const read = Effect.map(
        call(client.asMember.customerPayments.listEvents({ params, query: { ...query, limit: livePage } })),
        ({ items }) => items
      )
      /** The status that was shown of each. */
      let shown = new Map((yield* read).map((one) => [one.id, one.processingStatus]))
      let left = Option.getOrElse(flags.count, () => Number.POSITIVE_INFINITY)
      yield* say(`Events of ${where.project}/${where.environment} show here as they come`)
      while (left > 0) {
        yield* Effect.sleep("1 second")
        const items = yield* read
        for (const one of items.toReversed()) {
          if (left <= 0 || shown.get(one.id) === one.processingStatus) continue
          if (!shown.has(one.id)) left--
          yield* asJson
            ? jsonLine(one)
            : out(`${one.receivedAt}  ${one.processingStatus.padEnd(10)}  ${one.type}  ${one.id}`)
        }
        shown = new Map(items.map((one) => [one.id, one.processingStatus]))
      }
    })
).pipe(Command.withDescription("Show events as Stripe sends them, and what becomes of them"))

export const payments = Command.make("payments").pipe(
  Command.withDescription("Payments of an app's own customers, through a connected Stripe account"),
  Command.withSubcommands([
    show,
    connect,
    update,
    disconnect,
    products,
    prices,
    customers,
    checkouts,
    portal,
    subscriptions,
    events,
    listen
  ])
)
