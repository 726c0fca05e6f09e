/** `svc payments products`, `prices`, `customers`, `checkout`, `portal` and `subscriptions`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, yes } from "#src/cli/flags.ts"
import { json, out, say, table } from "#src/cli/output.ts"
import { itemsOf } from "#src/cli/pages.ts"
import { commandIn, inEnvironment } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { CheckoutMode, Interval } from "./views.ts"

const command = commandIn(inEnvironment)
const limit = Flag.Int("limit").pipe(Flag.withDescription("How many, from the oldest"), Flag.withDefault(100))
const id = (what: string) => Argument.String(what).pipe(Argument.withDescription(`Id of the ${what}`))
const text = (name: string, description: string) => Flag.String(name).pipe(Flag.withDescription(description))

const show = <A>(
  asJson: boolean,
  items: ReadonlyArray<A>,
  columns: Readonly<Record<string, (item: A) => string>>
) =>
  asJson
    ? json(items)
    : items.length === 0
      ? say("There are none")
      : out(
          table(
            Object.keys(columns),
            items.map((item) => Object.values(columns).map((cell) => cell(item)))
          )
        )
/** What was made or changed: its id alone on standard output, or all of it as JSON. */
const done = (asJson: boolean, made: { readonly id: string }) => (asJson ? json(made) : out(made.id))

const productsLs = command("ls", { limit }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { params, query } = yield* at
    const items = yield* itemsOf(
      (page) => call(client.asMember.customerPayments.listProducts({ params, query: { ...query, ...page } })),
      flags.limit
    )
    yield* show(asJson, items, {
      ID: (one) => one.id,
      NAME: ({ name }) => name,
      ACTIVE: ({ active }) => (active ? "yes" : "archived"),
      CREATED: ({ createdAt }) => createdAt
    })
  })
).pipe(Command.withAlias("list"), Command.withDescription("List products, oldest first"))
const description = text("description", "What it is").pipe(Flag.optional)
const productsCreate = command(
  "create",
  {
    name: Argument.String("name").pipe(Argument.withDescription("What customers read")),
    more: { description }
  },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const payload = { name: flags.name, ...given(flags.more) }
      const made = yield* call(
        client.asMember.customerPayments.createProduct({ ...(yield* at), headers: {}, payload })
      )
      yield* done(asJson, made)
    })
).pipe(Command.withDescription("Create a product"))
const productsUpdate = command(
  "update",
  {
    product: id("product"),
    name: text("name", "What customers read").pipe(Flag.optional),
    more: {
      description,
      active: Flag.Boolean("active").pipe(Flag.withDescription("--no-active archives it"), Flag.optional)
    }
  },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params, query } = yield* at
      const one = { params: { ...params, productId: flags.product }, query }
      const { name } = yield* call(client.asMember.customerPayments.getProduct(one))
      const payload = { name, ...given({ name: flags.name, ...flags.more }) }
      yield* done(asJson, yield* call(client.asMember.customerPayments.updateProduct({ ...one, payload })))
    })
).pipe(Command.withDescription("Change a product, or archive it"))
export const products = Command.make("products").pipe(
  Command.withDescription("What customers pay for"),
  Command.withSubcommands([productsLs, productsCreate, productsUpdate])
)

const pricesLs = command("ls", { limit }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { params, query } = yield* at
    const items = yield* itemsOf(
      (page) => call(client.asMember.customerPayments.listPrices({ params, query: { ...query, ...page } })),
      flags.limit
    )
    yield* show(asJson, items, {
      ID: (one) => one.id,
      PRODUCT: ({ productId }) => productId ?? "",
      AMOUNT: ({ unitAmount, currency }) => `${unitAmount ?? "?"} ${currency}`,
      EVERY: ({ interval }) => interval ?? "once",
      ACTIVE: ({ active }) => (active ? "yes" : "archived")
    })
  })
).pipe(
  Command.withAlias("list"),
  Command.withDescription("List prices, oldest first; amounts are in the currency's smallest unit")
)
const pricesCreate = command(
  "create",
  {
    productId: id("product"),
    unitAmount: Flag.Int("amount").pipe(Flag.withDescription("In the currency's smallest unit")),
    currency: text("currency", "Such as usd"),
    more: {
      interval: Flag.Literals("every", Interval.literals).pipe(
        Flag.withDescription("Paid again and again; without it once"),
        Flag.optional
      )
    }
  },
  ({ client, at, json: asJson, flags: { more, ...price } }) =>
    Effect.gen(function* () {
      const payload = { ...price, ...given(more) }
      const made = yield* call(
        client.asMember.customerPayments.createPrice({ ...(yield* at), headers: {}, payload })
      )
      yield* done(asJson, made)
    })
).pipe(Command.withDescription("Create a price of a product"))
const pricesUpdate = command(
  "update",
  {
    price: id("price"),
    active: Flag.Boolean("active").pipe(Flag.withDescription("--no-active archives it"))
  },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params, query } = yield* at
      const one = { params: { ...params, priceId: flags.price }, query, payload: { active: flags.active } }
      yield* done(asJson, yield* call(client.asMember.customerPayments.updatePrice(one)))
    })
).pipe(Command.withDescription("Archive a price, or bring it back"))
export const prices = Command.make("prices").pipe(
  Command.withDescription("What products cost"),
  Command.withSubcommands([pricesLs, pricesCreate, pricesUpdate])
)

const customersLs = command("ls", { limit }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { params, query } = yield* at
    const items = yield* itemsOf(
      (page) =>
        call(client.asMember.customerPayments.listCustomers({ params, query: { ...query, ...page } })),
      flags.limit
    )
    yield* show(asJson, items, {
      ID: (one) => one.id,
      EMAIL: ({ email }) => email ?? "",
      NAME: ({ name }) => name ?? "",
      CREATED: ({ createdAt }) => createdAt
    })
  })
).pipe(Command.withAlias("list"), Command.withDescription("List customers, oldest first"))
const person = {
  email: text("email", "Where receipts go").pipe(Flag.optional),
  name: text("name", "What to call them").pipe(Flag.optional)
}
const customersCreate = command("create", { person }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const payload = given(flags.person)
    const made = yield* call(
      client.asMember.customerPayments.createCustomer({ ...(yield* at), headers: {}, payload })
    )
    yield* done(asJson, made)
  })
).pipe(Command.withDescription("Create a customer"))
const customersUpdate = command(
  "update",
  { customer: id("customer"), person },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const payload = given(flags.person)
      if (Object.keys(payload).length === 0)
        return yield* failure("Say what to change; --help lists it", exitCodes.usage)
      const { params, query } = yield* at
      const one = { params: { ...params, customerId: flags.customer }, query, payload }
      yield* done(asJson, yield* call(client.asMember.customerPayments.updateCustomer(one)))
    })
).pipe(Command.withDescription("Change a customer"))
export const customers = Command.make("customers").pipe(
  Command.withDescription("Who pays"),
  Command.withSubcommands([customersLs, customersCreate, customersUpdate])
)

export const checkouts = command(
  "checkout",
  {
    price: Flag.String("price").pipe(
      Flag.withDescription("Id of a price; may be given several times"),
      Flag.atLeast(1)
    ),
    mode: Flag.Literals("mode", CheckoutMode.literals).pipe(
      Flag.withDescription("Paid once, or a subscription"),
      Flag.withDefault("payment")
    ),
    successUrl: text("success-url", "Where the customer comes back to, at an allowed redirect origin"),
    more: {
      cancelUrl: text("cancel-url", "Where who does not pay comes back to").pipe(Flag.optional),
      customerId: text("customer", "Id of the customer who pays").pipe(Flag.optional)
    }
  },
  ({ client, at, json: asJson, flags: { price, mode, successUrl, more } }) =>
    Effect.gen(function* () {
      const lineItems = price.map((priceId) => ({ priceId }))
      const payload = { mode, lineItems, successUrl, ...given(more) }
      const made = yield* call(
        client.asMember.customerPayments.createCheckoutSession({ ...(yield* at), headers: {}, payload })
      )
      yield* asJson ? json(made) : out(made.url ?? made.id)
    })
).pipe(Command.withDescription("Create a page on which a customer pays, and print its address"))

export const portal = command(
  "portal",
  {
    customerId: id("customer"),
    returnUrl: text("return-url", "Where the customer comes back to, at an allowed redirect origin")
  },
  ({ client, at, json: asJson, flags: payload }) =>
    Effect.gen(function* () {
      const made = yield* call(
        client.asMember.customerPayments.createPortalSession({ ...(yield* at), headers: {}, payload })
      )
      yield* asJson ? json(made) : out(made.url)
    })
).pipe(
  Command.withDescription("Create a page on which a customer manages subscriptions, and print its address")
)

const subscriptionsLs = command("ls", { limit }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { params, query } = yield* at
    const items = yield* itemsOf(
      (page) =>
        call(client.asMember.customerPayments.listSubscriptions({ params, query: { ...query, ...page } })),
      flags.limit
    )
    yield* show(asJson, items, {
      ID: (one) => one.id,
      CUSTOMER: ({ customerId }) => customerId ?? "",
      PRICE: ({ priceId }) => priceId ?? "",
      STATUS: ({ status }) => status,
      UNTIL: ({ currentPeriodEnd, cancelAtPeriodEnd }) =>
        `${currentPeriodEnd ?? ""}${cancelAtPeriodEnd ? ", then it ends" : ""}`
    })
  })
).pipe(Command.withAlias("list"), Command.withDescription("List subscriptions, oldest first"))
const subscriptionsCancel = command(
  "cancel",
  {
    subscription: id("subscription"),
    now: Flag.Boolean("now").pipe(
      Flag.withDescription("At once, and not with the period that is paid"),
      Flag.withDefault(false)
    ),
    yes
  },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params, query } = yield* at
      const one = { params: { ...params, subscriptionId: flags.subscription }, query }
      const when = flags.now ? "now" : "when its period ends"
      yield* confirmName(`This cancels the subscription ${when}.`, flags.subscription, flags.yes)
      const operations = client.asMember.customerPayments
      const after = yield* flags.now
        ? call(operations.cancelSubscription(one))
        : call(operations.updateSubscription({ ...one, payload: { cancelAtPeriodEnd: true } }))
      yield* done(asJson, after)
    })
).pipe(Command.withDescription("Cancel a subscription, with its period unless --now"))
const subscriptionsResume = command(
  "resume",
  { subscription: id("subscription") },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params, query } = yield* at
      const after = yield* call(
        client.asMember.customerPayments.updateSubscription({
          params: { ...params, subscriptionId: flags.subscription },
          query,
          payload: { cancelAtPeriodEnd: false }
        })
      )
      yield* done(asJson, after)
    })
).pipe(Command.withDescription("Have a subscription go on that was to end with its period"))
export const subscriptions = Command.make("subscriptions").pipe(
  Command.withDescription("What customers pay again and again"),
  Command.withSubcommands([subscriptionsLs, subscriptionsCancel, subscriptionsResume])
)
