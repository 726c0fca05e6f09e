// biome-ignore-all lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Api } from "#src/api/definition/api.ts"
import { Operation } from "#src/api/definition/operation.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { type StandIn, stripeStandIn } from "#test/payments/stripe/stand-in.ts"
import { allScopes, newSecret } from "#test/payments/world.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { answeringNode } from "#test/setup/edge-node.ts"
import { knownToken, person } from "#test/setup/people.ts"
import { type ObjectStore, objectStore, trust } from "#test/setup/s3.ts"
import { eventually } from "#test/setup/wait.ts"

const org = "/v1/orgs/main"
const shop = `${org}/projects/shop`

const manifest = (slug: string) => ({
  version: 1,
  organization: "main",
  projects: [{ slug, name: slug, runtimeClass: "scale-to-zero" }]
})

interface Attempt {
  readonly path: string
  readonly body?: unknown
  /** As the session of the first owner. */
  readonly person?: true
  /** Of whoever accepts an invitation. */
  readonly token?: string
  /** Read until it is ready before the first try. */
  readonly ready?: string
  /** What becomes of what was made before the next try. */
  readonly meanwhile?: string
}

/** What requests that make something are made with; `ids` are those of what the operations before them made. */
const making: Readonly<Record<string, (ids: (operation: string) => string) => Attempt>> = {
  "projects.create": () => ({ path: `${org}/projects`, body: { name: "Shop", slug: "shop" } }),
  "access.invite": () => ({ path: `${shop}/access/invitations`, body: { email: "ada@example.test" } }),
  "gitSources.create": () => ({
    path: `${org}/git-sources`,
    body: { name: "platform", url: "https://git.example.test/platform.git", suspended: true }
  }),
  "environments.create": () => ({ path: `${shop}/environments`, body: { slug: "staging" } }),
  "caches.create": () => ({
    path: `${shop}/caches`,
    body: { name: "fast", sku: "cache-n1", region: "local" }
  }),
  "caches.rotateCredentials": (ids) => ({
    path: `${shop}/caches/${ids("caches.create")}/credentials/rotate`
  }),
  "database.provision": () => ({ path: `${shop}/database` }),
  "database.rotatePassword": () => ({ path: `${shop}/database/rotate` }),
  "databaseBranches.create": (ids) => ({
    path: `${shop}/databases/${ids("database")}/branches`,
    body: {
      name: "copy",
      environment: "staging",
      region: "local",
      sku: "db-n1",
      source: { kind: "current" }
    },
    person: true
  }),
  "databaseBranches.rotatePassword": (ids) => ({
    path: `${shop}/databases/${ids("database")}/branches/${ids("databaseBranches.create")}/rotate`,
    ready: `${shop}/databases/${ids("database")}/branches/${ids("databaseBranches.create")}`
  }),
  "databaseBranches.promote": (ids) => ({
    path: `${shop}/databases/${ids("database")}/branches/${ids("databaseBranches.create")}/promote`,
    ready: `${shop}/databases/${ids("database")}/branches/${ids("databaseBranches.create")}`,
    person: true
  }),
  "backups.create": (ids) => ({
    path: `${shop}/databases/${ids("database")}/backups`,
    body: {},
    meanwhile:
      "update backup_job set status = 'failed', finished_at = now(), due_at = null, lease_token = null"
  }),
  "queues.create": () => ({ path: `${shop}/queues`, body: { name: "jobs" } }),
  "queues.publish": (ids) => ({
    path: `${shop}/queues/${ids("queues.create")}/messages`,
    body: { messages: [{ body: 1 }, { body: 2, idempotencyKey: "two" }, { body: 3, idempotencyKey: "two" }] },
    // Delivered.
    meanwhile: "delete from queue_message"
  }),
  "aiGateways.create": () => ({
    path: `${shop}/ai-gateways`,
    body: { name: "ai", allowedModels: ["svc/fast"], monthlyBudgetUsd: 5 }
  }),
  "aiGateways.createKey": (ids) => ({
    path: `${shop}/ai-gateways/${ids("aiGateways.create")}/keys`,
    body: { name: "app" }
  }),
  "customerPayments.createProduct": () => ({ path: `${shop}/payments/products`, body: { name: "Pro" } }),
  "customerPayments.createPrice": (ids) => ({
    path: `${shop}/payments/prices`,
    body: { productId: ids("customerPayments.createProduct"), unitAmount: 500, currency: "usd" }
  }),
  "customerPayments.createCustomer": () => ({
    path: `${shop}/payments/customers`,
    body: { email: "buyer@example.com" }
  }),
  "customerPayments.createCheckoutSession": (ids) => ({
    path: `${shop}/payments/checkout-sessions`,
    body: {
      mode: "payment",
      lineItems: [{ priceId: ids("customerPayments.createPrice") }],
      successUrl: "https://shop.example.com/done"
    }
  }),
  "customerPayments.createPortalSession": (ids) => ({
    path: `${shop}/payments/billing-portal-sessions`,
    body: { customerId: ids("customerPayments.createCustomer"), returnUrl: "https://shop.example.com/" }
  }),
  "crons.create": () => ({
    path: `${shop}/crons`,
    body: {
      name: "yearly",
      schedule: "0 0 1 1 *",
      timezone: "UTC",
      target: { kind: "http", path: "/jobs", method: "POST" }
    }
  }),
  "alerts.create": () => ({
    path: `${shop}/alerts`,
    body: { name: "Disk full", severity: "info", scope: {}, condition: { signal: "storage.capacity" } }
  }),
  "crons.trigger": (ids) => ({ path: `${shop}/crons/${ids("crons.create")}/trigger` }),
  "executions.create": () => ({
    path: `${shop}/executions`,
    body: { image: "docker.io/library/alpine:3", command: ["true"], region: "local" }
  }),
  "deployments.create": () => ({ path: `${shop}/deployments`, body: { image: "alpine:3" } }),
  "deployments.cancel": (ids) => ({ path: `${shop}/deployments/${ids("deployments.create")}/cancel` }),
  "apps.restart": () => ({ path: `${shop}/app/restart` }),
  "executions.cancel": (ids) => ({ path: `${shop}/executions/${ids("executions.create")}/cancel` }),
  "environments.rotateSigningSecret": (ids) => ({
    path: `${shop}/environments/${ids("environments.create")}/signing-secret/rotate`
  }),
  "environments.rotateAppServiceToken": (ids) => ({
    path: `${shop}/environments/${ids("environments.create")}/app-service-token/rotate`
  }),
  "domains.add": () => ({ path: `${shop}/domains`, body: { hostname: "www.example.com" } }),
  "webhooks.create": () => ({
    path: `${org}/webhooks`,
    body: { url: "https://127.0.0.1:9/hook", events: ["budget.alert"] }
  }),
  "webhooks.rotateSecret": (ids) => ({
    path: `${org}/webhooks/${ids("webhooks.create")}/secret/rotate`,
    body: {}
  }),
  "webhooks.test": (ids) => ({ path: `${org}/webhooks/${ids("webhooks.create")}/test` }),
  "webhooks.redeliver": (ids) => ({
    path: `${org}/webhooks/${ids("webhooks.create")}/deliveries/${ids("webhooks.test")}/redeliver`
  }),
  "gitConnections.create": () => ({
    path: `${org}/git-connections`,
    body: { name: "acme", kind: "github_token", owner: "acme", token: "ghp_0123456789" }
  }),
  "apikeys.create": () => ({ path: `${org}/api-keys`, body: { name: "ci" }, person: true }),
  "orgs.create": () => ({ path: "/v1/orgs", body: { name: "Second", slug: "second" }, person: true }),
  "manifest.plan": () => ({ path: `${org}/manifest/plan`, body: manifest("planned") }),
  "manifest.apply": () => ({ path: `${org}/manifest/apply`, body: { manifest: manifest("applied") } })
}

/** Where a second try does what the first one did and leaves it as it is, and what other operations do the same way. */
const others = new Set([
  ...["domains.check", "gitConnections.check"],
  // Reads, with a question in the body.
  "metrics.query",
  ...["resources.retry", "resources.pause", "resources.resume", "resources.pauseMany", "resources.abandon"],
  ...["alerts.silence", "alerts.acknowledge"],
  ...["queues.redrive", "queues.purge", "backupDestinations.test", "customerPayments.retryEvent"],
  ...["maintenance.run", "maintenance.dismiss", "maintenance.reopen", "gitSources.sync"],
  // One for each pull request; its environment is made by itself, and counts as a row: test/conformance/every-kind.test.ts.
  "previews.create",
  // The same twice.
  ...["previews.approve", "gitSources.approve"],
  // They choose what was ready before, which takes a container engine: test/apps/apps.test.ts.
  ...["deployments.rollback", "deployments.promote"],
  // It makes nothing, and is never done twice: test/apps/apps.test.ts.
  "apps.exec",
  // A branch, like `databaseBranches.create`.
  "backups.restore",
  // A look.
  "speedInsights.query",
  // Of strangers, who have no keys to be told again by.
  "productTelemetry.track"
])

/** What two tries of one request may tell differently: how far it has come. */
const moving = new Set([
  ...["verificationErrors", "instructions", "address", "measured", "incident", "underlyingState"],
  ...["status", "state", "step", "error", "reason", "progressPercent", "attempts", "nextAttemptAt"],
  ...[
    "since",
    "startedAt",
    "finishedAt",
    "updatedAt",
    "expiresAt",
    "createdAt",
    "revision",
    "cleanupStatus",
    "conditions",
    "baseRevision"
  ]
])
const lasting = (body: any): any =>
  typeof body === "object" && body !== null
    ? Object.fromEntries(Object.entries(body).filter(([name]) => !moving.has(name)))
    : body

/** Of an organization: signing in and out makes nothing for anybody else. */
const operations = Object.values(Api.groups).flatMap((group) =>
  Object.values(group.endpoints).flatMap((endpoint) => {
    const operation = Context.get(endpoint.annotations, Operation)
    return endpoint.method === "POST" && operation !== undefined && !operation.id.startsWith("auth.")
      ? [operation.id]
      : []
  })
)

/** All that is made once and stays. Backups are made by themselves as well. */
const rows = `
  select count(*)::int as n, 'resource' as what from resource
  union all select count(*), 'budget' from budget_entry
  union all select count(*), 'message' from queue_message
  union all select count(*), 'run' from cron_run
  union all select count(*), 'event' from webhook_event
  union all select count(*), 'delivery' from webhook_delivery
  union all select count(*), 'webhook' from webhook
  union all select count(*), 'key' from api_key
  union all select count(*), 'gateway key' from ai_gateway_key
  union all select count(*), 'app token' from app_service_token
  union all select count(*), 'payment object' from payment_object
  union all select count(*), 'payment request' from payment_intent
  union all select count(*), 'invitation' from invitation
  union all select count(*), 'mail' from mail_outbox
  union all select count(*), 'organization' from organization
  union all select count(*), 'member' from member
  union all select count(*), 'plan' from plan
  order by 2`

/** Of executions that have not ended. */
const held = `
  select (select sum(reserved) from budget_month) as reserved,
    (select sum(cardinality(uids)) from execution_org_room) as places`

/** As if each process were killed between its work and its answer, whose key begins with "killed/". */
const killed = Effect.gen(function* () {
  const { sql } = yield* Plane
  yield* sql(`
    create or replace function lose_answer() returns trigger language plpgsql as $$
    begin
      return case when new.status is null or new.key not like 'killed/%' then new end;
    end $$`)
  yield* sql(
    "create or replace trigger lose_answer before update on idempotency for each row execute function lose_answer()"
  )
})

const readyAt = Effect.fnUntraced(function* (path: string) {
  const { call } = yield* Plane
  yield* eventually("it is ready", call("GET", path), ({ body }): boolean => body.status === "ready")
})

/** Tries a request whose first try is never answered, and answers what that one made. */
const triedTwice = Effect.fnUntraced(function* (operation: string, attempt: Attempt) {
  const { call, sql, session } = yield* Plane
  yield* killed
  const { path, body, person, token, ready, meanwhile } = attempt
  if (ready !== undefined) yield* readyAt(ready)
  const key = `killed/${operation.replaceAll(" ", "-")}`
  const send = call("POST", path, {
    ...(person === undefined ? {} : { token: session }),
    ...(token === undefined ? {} : { token }),
    ...(body === undefined ? {} : { body }),
    headers: { "idempotency-key": key }
  })
  const first = yield* send
  assert.include([200, 201, 202], first.status, `${operation}: ${first.text}`)
  if (meanwhile !== undefined) yield* sql(meanwhile)
  // What is held of a budget is let go once the execution ends.
  const holding = operation === "executions.create" ? sql(held) : Effect.succeed([])
  const before = [yield* sql(rows), yield* holding]
  const early = yield* send
  assert.deepStrictEqual([early.status, early.body.code], [409, "idempotency_key_in_flight"], operation)
  yield* sql(`update idempotency set created_at = now() - interval '3 minutes' where key = '${key}'`)
  const second = yield* send
  assert.strictEqual(second.status, first.status, `${operation}: ${second.text}`)
  assert.deepStrictEqual(lasting(second.body), lasting(first.body), operation)
  assert.deepStrictEqual([yield* sql(rows), yield* holding], before, operation)
  return second.body
})

class Store extends Context.Service<Store, ObjectStore>()("test/ObjectStore") {}
class Stripe extends Context.Service<Stripe, StandIn>()("test/Stripe") {}
// Without a container engine executions wait for one.
const world = Layer.unwrap(
  Effect.map(Effect.all([objectStore, stripeStandIn]), ([store, stripe]) => {
    trust(store.caPem)
    return Layer.mergeAll(
      testPlane({ containerSocket: "none" }, { SVC_STRIPE_URL: stripe.url }),
      Layer.succeed(Store, store),
      Layer.succeed(Stripe, stripe)
    )
  })
)

const connectPayments = Effect.gen(function* () {
  const { call, session } = yield* Plane
  const body = {
    secretKey: (yield* Stripe).key(),
    webhookSecret: newSecret(),
    credentialScopes: allScopes,
    allowedRedirectOrigins: ["https://shop.example.com"]
  }
  const connected = yield* call("PUT", `${shop}/payments`, { token: session, body })
  assert.strictEqual(connected.status, 200, connected.text)
})

layer(world, { excludeTestServices: true, timeout: "2 minutes" })("requests tried again", (it) => {
  campaign(
    it.effect,
    "retries-kills",
    "requests tried again answer what the try made whose process was killed before its answer, and make nothing twice",
    { rounds: 0, roundMs: 300_000 },
    () =>
      Effect.gen(function* () {
        const { call, databaseUrl } = yield* Plane
        yield* answeringNode(databaseUrl)
        const made = new Map<string, string>()
        const ids = (operation: string) => made.get(operation) ?? assert.fail(`${operation} made nothing`)
        for (const [operation, attempt] of Object.entries(making)) {
          const { id } = yield* triedTwice(operation, attempt(ids))
          if (typeof id === "string") made.set(operation, id)
          if (operation === "projects.create") yield* connectPayments
          if (operation === "database.provision") {
            made.set("database", (yield* call("GET", `${shop}/database`)).body.id)
          }
        }
        const planned = yield* call("POST", `${org}/manifest/plan`, { body: manifest("reviewed") })
        yield* triedTwice("manifest.apply of a plan", {
          path: `${org}/manifest/apply`,
          body: { planId: planned.body.planId }
        })
        const guest = yield* person()
        const body = { email: guest.email, role: "member" }
        const { id } = yield* triedTwice("orgs.createInvitation", {
          path: `${org}/invitations`,
          body,
          person: true
        })
        const token = yield* knownToken(id)
        yield* triedTwice("invitations.accept", {
          path: `/v1/invitations/${token}/accept`,
          token: guest.token
        })
        const { endpoint, bucket, credentials } = yield* Store
        yield* triedTwice("backupDestinations.create", {
          path: `${org}/backup-destinations`,
          body: { name: "offsite", endpoint, bucket, credentials }
        })
        const tried = new Set([
          ...Object.keys(making),
          ...["orgs.createInvitation", "invitations.accept", "backupDestinations.create"]
        ])
        assert.deepStrictEqual(
          operations.filter((id) => !tried.has(id) && !others.has(id)),
          []
        )
      })
  )

  it.effect("that purge a queue leave what was published since their first try", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      yield* call("POST", `${org}/projects`, { body: { name: "Purged", slug: "purged" } })
      const made = yield* call("POST", `${org}/projects/purged/queues`, { body: { name: "jobs" } })
      const queue = `${org}/projects/purged/queues/${made.body.id}`
      const publish = (body: string) => call("POST", `${queue}/messages`, { body: { messages: [{ body }] } })
      const purge = call("POST", `${queue}/purge`, { headers: { "idempotency-key": "killed/purge" } })
      yield* killed
      yield* publish("old")
      assert.deepStrictEqual((yield* purge).body, { purged: 1 })
      yield* publish("new")
      yield* sql(
        "update idempotency set created_at = now() - interval '3 minutes' where key = 'killed/purge'"
      )
      assert.deepStrictEqual((yield* purge).body, { purged: 0 })
      assert.strictEqual((yield* call("GET", `${queue}/stats`)).body.backlog, 1)
    })
  )
})
