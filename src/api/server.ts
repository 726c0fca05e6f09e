/** The HTTP server of the API, and the one for metrics, which listens on loopback only. */
import { createServer } from "node:http"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as HttpMiddleware from "effect/http/HttpMiddleware"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Layer from "effect/Layer"
import * as PrometheusMetrics from "effect/observability/PrometheusMetrics"
import { Access } from "#src/access/Access.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { Promotions } from "#src/branches/Promotions.ts"
import { AppConfig } from "#src/config.ts"
import * as metrics from "#src/engine/metrics.ts"
import { WorkStore } from "#src/engine/WorkStore.ts"
import { Executions } from "#src/executions/Executions.ts"
import { Logs } from "#src/executions/Logs.ts"
import { Identity } from "#src/identity/Identity.ts"
import { Oidc } from "#src/identity/Oidc.ts"
import { People } from "#src/identity/People.ts"
import * as pages from "#src/identity/pages/routes.ts"
import { Passwords } from "#src/identity/passwords.ts"
import { Sessions } from "#src/identity/Sessions.ts"
import { Mail } from "#src/mail/Mail.ts"
import { Manifests } from "#src/manifest/Manifests.ts"
import * as queueLimits from "#src/queues/limits.ts"
import { Messages } from "#src/queues/Messages.ts"
import { AccessRecords } from "#src/store/AccessRecords.ts"
import { AgentGrants } from "#src/store/AgentGrants.ts"
import { ApiKeys } from "#src/store/ApiKeys.ts"
import { Audit } from "#src/store/Audit.ts"
import { AuditLog } from "#src/store/AuditLog.ts"
import { Idempotency } from "#src/store/Idempotency.ts"
import { Interventions } from "#src/store/Interventions.ts"
import { Invitations } from "#src/store/Invitations.ts"
import { Members } from "#src/store/Members.ts"
import { Organizations } from "#src/store/Organizations.ts"
import { Plans } from "#src/store/Plans.ts"
import { WebhookDeliveries } from "#src/store/WebhookDeliveries.ts"
import { Webhooks } from "#src/store/Webhooks.ts"
import * as agentGrants from "./agent-grants.ts"
import * as apikeys from "./apikeys.ts"
import * as audit from "./audit.ts"
import * as backupDestinations from "./backup-destinations.ts"
import * as backups from "./backups.ts"
import * as caches from "./caches.ts"
import * as crons from "./crons.ts"
import { Cursors } from "./cursor.ts"
import * as database from "./database.ts"
import * as databaseBranches from "./database-branches.ts"
import { Api } from "./definition/api.ts"
import { Operation } from "./definition/operation.ts"
import * as docs from "./docs.ts"
import * as door from "./door.ts"
import * as env from "./env.ts"
import * as executions from "./executions.ts"
import * as gate from "./gate.ts"
import * as invitations from "./invitations.ts"
import { listener } from "./listener.ts"
import * as manifest from "./manifest.ts"
import * as members from "./members.ts"
import * as orgs from "./orgs.ts"
import * as projects from "./projects.ts"
import * as queues from "./queues.ts"
import { Replay } from "./replay.ts"
import * as resources from "./resources.ts"
import * as routing from "./routing.ts"
import * as signIn from "./sign-in.ts"
import * as system from "./system.ts"
import * as webhooks from "./webhooks.ts"

const handlers = Layer.mergeAll(
  projects.layerProjects,
  projects.layerEnvironments,
  env.layer,
  backupDestinations.layer,
  backups.layerBackups,
  backups.layerDatabases,
  caches.layer,
  crons.layer,
  executions.layer.pipe(Layer.provide([Executions.layer, Logs.layer])),
  database.layer,
  databaseBranches.layer.pipe(Layer.provide(Promotions.layer)),
  manifest.layer,
  queues.layer.pipe(Layer.provide(Messages.layer.pipe(Layer.provide(queueLimits.layer)))),
  resources.layer,
  system.layerSystem,
  system.layerMe
)

/** Organizations and who may do what in them. */
const people = Layer.mergeAll(
  orgs.layer,
  members.layer,
  invitations.layer,
  apikeys.layer,
  agentGrants.layer,
  audit.layer
).pipe(
  Layer.provide(
    Layer.mergeAll(
      Organizations.layer,
      Members.layer,
      Invitations.layer.pipe(Layer.provide(Mail.layer)),
      ApiKeys.layer,
      AgentGrants.layer,
      AuditLog.layer
    )
  )
)

/** Who is told of what happens. */
const webhookHandlers = webhooks.layer.pipe(Layer.provide([Webhooks.layer, WebhookDeliveries.layer]))

/** Who somebody is. */
const identity = Identity.layer.pipe(
  Layer.provide([Passwords.layer, Mail.layer]),
  Layer.provideMerge(Layer.mergeAll(People.layer, Sessions.layer, Oidc.layer))
)

const services = Layer.mergeAll(
  Access.layer,
  AccessRecords.layer,
  Audit.layer,
  Cursors.layer,
  Interventions.layer,
  Manifests.layer.pipe(Layer.provide(Plans.layer)),
  RateLimits.layer,
  Replay.layer.pipe(Layer.provide(Idempotency.layer))
)

/** Deny by default: an operation that nobody described does not get a server. */
const everyOperationIsDescribed = Effect.sync(() => {
  for (const group of Object.values(Api.groups)) {
    for (const endpoint of Object.values(group.endpoints)) {
      if (Context.get(endpoint.annotations, Operation) === undefined) {
        throw new Error(`${endpoint.method} ${endpoint.path} has no operation metadata`)
      }
    }
  }
})

const routes = Layer.mergeAll(
  HttpApiBuilder.layer(Api),
  docs.layer,
  pages.layer.pipe(Layer.provide(Invitations.layer), Layer.provide(Mail.layer)),
  routing.layer
).pipe(
  Layer.provide(handlers),
  Layer.provide(people),
  Layer.provide(webhookHandlers),
  Layer.provide(Layer.mergeAll(signIn.layerSignIn, signIn.layerSessions)),
  Layer.provide(Layer.mergeAll(gate.layer, door.layer)),
  Layer.provide(identity),
  Layer.provide(services)
)

/** Traces hold addresses of requests; these addresses hold what signs somebody in. */
const untraced = Layer.succeed(
  HttpMiddleware.TracerDisabledWhen,
  ({ url }) => url.startsWith("/v1/invitations/") || url.includes("token=") || url.includes("code=")
)

/** Serves the API while its scope is open. Requests under way get a few seconds when it closes. */
export const layer = Layer.unwrap(
  Effect.gen(function* () {
    yield* everyOperationIsDescribed
    const { host, port } = yield* AppConfig
    return HttpRouter.serve(routes, {
      disableLogger: true,
      disableListenLog: true,
      // One address for one thing.
      routerConfig: { caseSensitive: true, ignoreDuplicateSlashes: false }
    }).pipe(
      Layer.provide(untraced),
      Layer.provide(
        NodeHttpServer.layer(() => listener(), { host, port, gracefulShutdownTimeout: "5 seconds" })
      )
    )
  })
)

const metricsRoute = HttpRouter.add(
  "GET",
  "/metrics",
  Effect.gen(function* () {
    const store = yield* WorkStore
    const stats = yield* Effect.option(store.stats)
    if (stats._tag === "Some") metrics.queue(stats.value)
    const text = yield* PrometheusMetrics.format()
    return HttpServerResponse.text(text, { contentType: "text/plain; version=0.0.4" })
  })
)

export const metricsLayer = Layer.unwrap(
  Effect.map(AppConfig, ({ metricsPort }) =>
    HttpRouter.serve(metricsRoute, { disableLogger: true, disableListenLog: true }).pipe(
      Layer.provide(
        NodeHttpServer.layer(createServer, {
          host: "127.0.0.1",
          port: metricsPort,
          gracefulShutdownTimeout: "1 second"
        })
      )
    )
  )
)
