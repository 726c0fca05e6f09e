/** Composes the control plane: this file alone knows all of its parts. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Otlp from "effect/observability/Otlp"
import { MinimumLogLevel } from "effect/References"
import { reconcilers } from "#reconcilers/index.ts"
import { type Bootstrap, bootstrap } from "./access/bootstrap.ts"
import * as server from "./api/server.ts"
import { Destinations } from "./backups/Destinations.ts"
import { remotes } from "./backups/destination-remotes.ts"
import * as backupHealth from "./backups/health.ts"
import { Jobs } from "./backups/Jobs.ts"
import { Ledger } from "./backups/Ledger.ts"
import { Repository } from "./backups/Repository.ts"
import * as backupRunner from "./backups/runner.ts"
import { Stretches } from "./backups/Stretches.ts"
import * as branchChores from "./branches/chores.ts"
import { Sources } from "./branches/Sources.ts"
import { Budgets } from "./budgets/Budgets.ts"
import * as budgetTidy from "./budgets/tidy.ts"
import { Catalog } from "./catalog/Catalog.ts"
import { AppConfig } from "./config.ts"
import { Crons } from "./crons/Crons.ts"
import { DueRuns } from "./crons/DueRuns.ts"
import * as cronRunner from "./crons/runner.ts"
import { Engine } from "./engine/Engine.ts"
import { Registry } from "./engine/Reconciler.ts"
import * as Worker from "./engine/Worker.ts"
import * as executions from "./executions/services.ts"
import * as executionTidy from "./executions/tidy.ts"
import { CertificateAuthority } from "./infra/CertificateAuthority.ts"
import { Host } from "./infra/Host.ts"
import { Hydrations } from "./infra/Hydrations.ts"
import * as limitsCare from "./infra/limits-care.ts"
import { PostgresServers } from "./infra/PostgresServers.ts"
import { PostgresBinaries } from "./infra/postgres-binaries.ts"
import { RedisServers } from "./infra/RedisServers.ts"
import { StateStoreServer } from "./infra/StateStoreServer.ts"
import * as serverLogs from "./infra/server-logs.ts"
import * as deliver from "./mail/deliver.ts"
import { Mail } from "./mail/Mail.ts"
import { Outbox } from "./mail/Outbox.ts"
import { Transport } from "./mail/Transport.ts"
import { Outbound } from "./outbound/Outbound.ts"
import * as consume from "./queues/consume.ts"
import * as queueLimits from "./queues/limits.ts"
import { Messages } from "./queues/Messages.ts"
import { QueueTables } from "./queues/QueueTables.ts"
import * as queueTidy from "./queues/tidy.ts"
import { Db } from "./store/Db.ts"
import * as Departures from "./store/Departures.ts"
import { Feed } from "./store/Feed.ts"
import { Fingerprint } from "./store/Fingerprint.ts"
import * as Housekeeping from "./store/Housekeeping.ts"
import { Invocations } from "./store/Invocations.ts"
import { KeyRing } from "./store/KeyRing.ts"
import { migrate } from "./store/migrate.ts"
import { Resources } from "./store/Resources.ts"
import * as Revivals from "./store/Revivals.ts"
import { PlatformSecrets, Secrets } from "./store/Secrets.ts"
import { checkKeyRing } from "./store/sealed.ts"
import * as Work from "./store/Work.ts"
import { Deliveries } from "./webhooks/Deliveries.ts"
import * as webhookLoop from "./webhooks/deliver.ts"

/** This machine and the state store's own server on it. */
const machine = StateStoreServer.layer.pipe(
  Layer.provideMerge(PostgresBinaries.layer),
  Layer.provideMerge(Host.layer)
)

/** The state store, migrated: the one that settings name, or the embedded one. */
const database = Layer.unwrap(
  Effect.gen(function* () {
    const { databaseUrl, rowSecurity } = yield* AppConfig
    const url = databaseUrl ?? (yield* (yield* StateStoreServer).ensureRunning)
    yield* migrate(url)
    return Db.layer({ url, rowSecurity })
  })
)

const store = Layer.mergeAll(
  Resources.layer,
  Feed.layer,
  Secrets.layer,
  Fingerprint.layer,
  Invocations.layer
).pipe(
  Layer.provideMerge(PlatformSecrets.layer),
  // Before anything opens or seals a value.
  Layer.provideMerge(Layer.effectDiscard(checkKeyRing)),
  Layer.provideMerge(KeyRing.layer),
  Layer.provideMerge(database)
)

/** Adapters to what runs on the machine for users. */
const infrastructure = Layer.mergeAll(
  PostgresServers.layer,
  Hydrations.layer,
  Sources.layer,
  RedisServers.layer,
  QueueTables.layer
)

/** What is kept of databases, and restoring it. */
const backups = Layer.mergeAll(Repository.layer, backupHealth.layer).pipe(
  Layer.provideMerge(Layer.mergeAll(Ledger.layer, Stretches.layer, Jobs.layer)),
  Layer.provideMerge(remotes),
  Layer.provideMerge(Destinations.layer),
  Layer.provide(PostgresServers.layer)
)

/** Ships logs, makes and proves backups. */
const backupLoops = backupRunner.layer.pipe(Layer.provide(PostgresServers.layer))

/** The reconcile loops of this process. */
const worker = Worker.layer.pipe(
  Layer.provide(reconcilers),
  Layer.provide(Registry.layer),
  Layer.provide(Work.signal),
  Layer.provide(infrastructure)
)

/** Sends what waits in the outbox. */
const mailer = deliver.layer.pipe(Layer.provide([Outbox.layer, Transport.layer]))

/** Brings the messages of queues to their apps. */
const queueLoops = Layer.mergeAll(consume.layer, queueTidy.layer)

/** Makes the runs of cron jobs. */
const cronRuns = cronRunner.layer.pipe(
  Layer.provide([DueRuns.layer, Messages.layer.pipe(Layer.provide(queueLimits.layer))])
)

/** Sends what happened to whoever wants to be told. */
const webhooks = webhookLoop.layer.pipe(Layer.provide(Deliveries.layer))

/** What the first start made, if this was the first. */
export class FirstStart extends Context.Service<FirstStart, { readonly made: Bootstrap | undefined }>()(
  "svc/FirstStart"
) {
  static readonly layer = Layer.effect(
    FirstStart,
    Effect.map(bootstrap, (made) => ({ made }))
  )
}

/** Everything, by the roles of this process. Building it is starting; closing its scope is stopping. */
export const controlPlane = Layer.unwrap(
  Effect.map(AppConfig, ({ roles }) => {
    const engine = roles.has("engine")
      ? Layer.mergeAll(Engine.layer.pipe(Layer.provide(worker)), Departures.layer, Revivals.layer)
      : Engine.layer
    const servers = roles.has("api") ? Layer.mergeAll(server.layer, server.metricsLayer) : server.metricsLayer
    const loops = roles.has("engine")
      ? Layer.mergeAll(
          Housekeeping.layer,
          serverLogs.layer,
          limitsCare.layer,
          branchChores.layer,
          mailer,
          queueLoops,
          cronRuns,
          webhooks,
          budgetTidy.layer,
          executionTidy.layer,
          backupLoops
        )
      : Housekeeping.layer
    return Layer.mergeAll(servers, loops).pipe(
      Layer.provide(engine),
      Layer.provide(Mail.layer),
      Layer.provide([Crons.layer, Budgets.layer, Catalog.layer, executions.layer]),
      Layer.provide(backups),
      Layer.provide(Outbound.layer),
      Layer.provideMerge(FirstStart.layer),
      Layer.provide(CertificateAuthority.layer),
      Layer.provide(Work.layer),
      Layer.provide(store),
      Layer.provide(machine)
    )
  })
)

/** Logs as lines for people or as JSON, and traces to a collector when one is configured. */
export const telemetry = Layer.unwrap(
  Effect.map(AppConfig, ({ logFormat, logLevel, otlpUrl }) => {
    const logs = Logger.layer([logFormat === "json" ? Logger.consoleJson : Logger.consoleLogFmt]).pipe(
      Layer.merge(Layer.succeed(MinimumLogLevel, logLevel))
    )
    if (otlpUrl === undefined) return logs
    return Otlp.layerJson({
      baseUrl: otlpUrl,
      resource: { serviceName: "svc" },
      loggerMergeWithExisting: true
    }).pipe(Layer.provide(FetchHttpClient.layer), Layer.provideMerge(logs))
  })
)
