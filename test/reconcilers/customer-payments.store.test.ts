/** The shared suite on the store and a server that stands in for Stripe. */
import { createHash, randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as customerPayments from "#reconcilers/customer-payments.ts"
import { type CustomerPaymentsSpec, paymentCredentialField } from "#schemas/customer-payments.ts"
import { AppConfig } from "#src/config.ts"
import { Registry, type Resource } from "#src/engine/Reconciler.ts"
import { Connections } from "#src/payments/Connections.ts"
import { Processor } from "#src/payments/Processor.ts"
import { Projections } from "#src/payments/Projections.ts"
import { Db } from "#src/store/Db.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { stripeStandIn, usualRights } from "#test/payments/stripe/stand-in.ts"
import { allScopes, newSecret } from "#test/payments/world.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { reconcilerSuite } from "./suite.ts"

const fingerprint = (value: string) => createHash("sha256").update(value).digest("base64url").slice(0, 22)
const keys = Redacted.make(`suite:${randomBytes(32).toString("base64")}`)

const world = Effect.gen(function* () {
  const stripe = yield* stripeStandIn
  const context = yield* Layer.build(
    Layer.mergeAll(Resources.layer, Secrets.layer).pipe(
      Layer.provideMerge(KeyRing.layerOf(keys)),
      Layer.provideMerge(testDb())
    )
  )
  const { id: orgId } = yield* Effect.provide(makeOrganization(), context)
  const place = yield* Effect.provide(makeProject(orgId, "shop"), context)
  return { stripe, context, db: Context.get(context, Db), orgId, place }
})
type World = Effect.Success<typeof world>
type Payments = Resource<CustomerPaymentsSpec>

const credentialsOf = (secretKey: string, webhookSecret: string) => ({
  credentials: { secretKey: fingerprint(secretKey), webhookSecret: fingerprint(webhookSecret) },
  secrets: {
    [paymentCredentialField("secretKey")]: Redacted.make(secretKey),
    [paymentCredentialField("webhookSecret")]: Redacted.make(webhookSecret)
  }
})
/** Each connection has an account of its own, and a key that may manage endpoints. */
const keyFor = ({ stripe }: World, uid: string) =>
  stripe.key({ ...usualRights, webhook_endpoints: "write" }, `acct_${uid}`)
const endpointsOf = ({ stripe }: World, { uid }: Payments) =>
  stripe.account(`acct_${uid}`).of("webhook_endpoints")

const makeResource = Effect.fnUntraced(function* (one: World) {
  const { orgId, place, context } = one
  const uid = uuid()
  const { credentials, secrets } = credentialsOf(keyFor(one, uid), newSecret())
  const spec = { credentials, credentialScopes: allScopes, allowedRedirectOrigins: [], checkedKey: null }
  // One to an environment: the suite makes many.
  const name = `payments-${uid.slice(-12)}`
  const change = {
    action: "create",
    uid,
    kind: "CustomerPayments",
    projectId: place.projectId,
    environment: "production",
    name,
    parentUid: place.production,
    spec,
    managedBy: "api",
    secrets
  } as const
  yield* Effect.provide(
    Effect.flatMap(Resources, (resources) => resources.write(orgId, [change], actor)),
    context
  )
  const resource: Payments = {
    orgId,
    uid,
    kind: "CustomerPayments",
    projectId: place.projectId,
    environment: "production",
    name,
    parentUid: place.production,
    spec: spec as CustomerPaymentsSpec,
    generation: 1,
    status: null,
    facts: {},
    deleting: false,
    fence: 1n
  }
  return resource
})

const changed = (secretKey: boolean) =>
  Effect.fnUntraced(function* (one: World, resource: Payments) {
    const { context, orgId } = one
    const { uid } = resource
    const webhookSecret = newSecret()
    const made = credentialsOf(secretKey ? keyFor(one, uid) : "", webhookSecret)
    const { credentials: before } = resource.spec
    const credentials = secretKey ? made.credentials : { ...made.credentials, secretKey: before.secretKey }
    const { [paymentCredentialField("secretKey")]: key, ...others } = made.secrets
    const secrets =
      secretKey && key !== undefined ? { ...others, [paymentCredentialField("secretKey")]: key } : others
    const spec = { ...resource.spec, credentials }
    yield* Effect.provide(
      Effect.flatMap(Resources, (resources) =>
        resources.write(orgId, [{ action: "update", uid, spec, secrets }], actor)
      ),
      context
    )
    return { ...resource, spec, generation: resource.generation + 1 }
  })

const statement =
  (set: string) =>
  (one: World, { uid }: Payments) =>
    Effect.asVoid(one.db.engine.unsafe(set.replace("$uid", `'${uid}'`)))

const connectionsLayer = Layer.mergeAll(Connections.layer, Projections.layer, Processor.layer)
const layer = ({ stripe, context }: World) =>
  customerPayments.layer.pipe(
    Layer.provide(connectionsLayer),
    Layer.provide(
      AppConfig.layerWith({ publicUrl: "https://svc.example.com" }, { SVC_STRIPE_URL: stripe.url })
    ),
    Layer.provide(Layer.succeed(Fingerprint, fingerprint)),
    Layer.provide(Layer.succeedContext(context)),
    Layer.provideMerge(Registry.layer),
    Layer.fresh
  )

reconcilerSuite<World, CustomerPaymentsSpec, unknown>({
  name: "a connection to Stripe",
  kind: "CustomerPayments",
  world,
  layer,
  makeResource,
  snapshot: Effect.fnUntraced(function* (one, resource) {
    const rows = yield* one.db.engine<{ kept: boolean; endpoint: string | null; refused: string | null }>`
      select webhook_secret = ${resource.spec.credentials.webhookSecret} as kept, endpoint_id as endpoint,
        refused_key as refused
      from payment_connection where uid = ${resource.uid}::uuid`
    const endpoints = endpointsOf(one, resource)
    return {
      rows: rows.map(({ kept, endpoint, refused }) => [kept, refused, endpoint === endpoints[0]?.["id"]]),
      endpoints: endpoints.map((row) => [row["status"], [...row["enabled_events"]].sort()])
    }
  }),
  remains: Effect.fnUntraced(function* (one, resource) {
    const left = yield* one.db.engine`
      select 'row' as what from payment_connection where uid = ${resource.uid}::uuid
      union all select field from secret where uid = ${resource.uid}::uuid`
    return [
      ...left.map((row) => String(row["what"])),
      ...endpointsOf(one, resource).map((row) => String(row["id"]))
    ]
  }),
  changes: [
    { name: "another signing secret", apply: changed(false) },
    { name: "another key", apply: changed(true) }
  ],
  drifts: [
    {
      name: "the endpoint was deleted at Stripe",
      field: "/webhookEndpoint",
      disturb: (one, resource) => Effect.sync(() => endpointsOf(one, resource).splice(0))
    },
    {
      name: "the endpoint was switched off",
      field: "/webhookEndpoint",
      disturb: (one, resource) =>
        Effect.sync(() => Object.assign(endpointsOf(one, resource)[0] ?? {}, { status: "disabled" }))
    },
    {
      name: "the endpoint is told of less",
      field: "/webhookEndpoint",
      disturb: (one, resource) =>
        Effect.sync(() =>
          Object.assign(endpointsOf(one, resource)[0] ?? {}, { enabled_events: ["product.updated"] })
        )
    },
    {
      name: "the secret of the endpoint was not kept",
      field: "/webhookEndpoint",
      disturb: statement("update payment_connection set endpoint_id = null where uid = $uid")
    },
    {
      name: "what was kept is lost",
      field: "/credentials/webhookSecret",
      disturb: statement("delete from payment_connection where uid = $uid")
    },
    {
      name: "the key was refused for a while",
      field: "/credentials/secretKey",
      disturb: statement(`update payment_connection c set refused_key = r.spec->'credentials'->>'secretKey'
        from resource r where r.uid = c.uid and c.uid = $uid`)
    }
  ]
})
