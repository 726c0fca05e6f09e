/** Composes the control plane: this file alone knows all of its parts. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Otlp from "effect/observability/Otlp"
import { MinimumLogLevel, TracerEnabled } from "effect/References"
import { type Bootstrap, bootstrap } from "./access/bootstrap.ts"
import { ReconcileNow } from "./api/ReconcileNow.ts"
import * as server from "./api/server.ts"
import * as appOrigins from "./apps/app-origins.ts"
import { checkServedRegion } from "./catalog/regions.ts"
import { AppConfig, type Role } from "./config.ts"
import { ServedRegion } from "./engine/options.ts"
import { Registry } from "./engine/Reconciler.ts"
import * as Worker from "./engine/Worker.ts"
import { mergeLayers } from "./feature.ts"
import { loadServers, tableRules } from "./features.ts"
import { CertificateAuthority } from "./infra/CertificateAuthority.ts"
import { Host } from "./infra/host/Host.ts"
import * as limitsCare from "./infra/host/remove-stale-groups.ts"
import * as serverLogs from "./infra/host/server-logs.ts"
import * as Revivals from "./infra/host/WakeOnServerExit.ts"
import { PostgresBinaries } from "./infra/postgres/PostgresBinaries.ts"
import { StateStoreServer } from "./infra/postgres/StateStoreServer.ts"
import * as Housekeeping from "./loops/Housekeeping.ts"
import * as Departures from "./organizations/OrganizationFinalizer.ts"
import { Invocations } from "./outbound/Invocations.ts"
import { Outbound } from "./outbound/Outbound.ts"
import { Db } from "./store/Db.ts"
import { Feed } from "./store/Feed.ts"
import { Fingerprint } from "./store/Fingerprint.ts"
import { KeyRing } from "./store/KeyRing.ts"
import { migrate } from "./store/migrate.ts"
import { Resources } from "./store/Resources.ts"
import { PlatformSecrets, Secrets } from "./store/Secrets.ts"
import { checkKeyRing } from "./store/sealed.ts"
import * as Work from "./store/Work.ts"

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
  Invocations.layer.pipe(Layer.provide(appOrigins.layer))
).pipe(
  Layer.provideMerge(PlatformSecrets.layer),
  // Before anything opens or seals a value.
  Layer.provideMerge(Layer.effectDiscard(checkKeyRing)),
  Layer.provideMerge(Layer.mergeAll(KeyRing.layer, tableRules)),
  Layer.provideMerge(database)
)

/** The reconcile loops of this process. */
const worker = Layer.unwrap(
  Effect.map(loadServers, (parts) =>
    Worker.layer.pipe(
      Layer.provide(mergeLayers(parts.flatMap(({ reconcilers }) => reconcilers ?? []))),
      Layer.provide([Registry.layer, Work.signal, checkServedRegion])
    )
  )
)

/** The region of this machine, for everything in this process that works on what is there. */
const servedRegion = Layer.effect(
  ServedRegion,
  Effect.map(AppConfig, ({ region }) => region)
)

/** What goes on beside the engine. */
const loops = Layer.unwrap(
  Effect.map(loadServers, (parts) =>
    Layer.mergeAll(serverLogs.layer, limitsCare.layer, mergeLayers(parts.flatMap((part) => part.loops ?? [])))
  )
)

/** What serves the apps' addresses though there may be no state store. */
const edgeBeforeStore = Layer.unwrap(
  Effect.map(loadServers, (parts) =>
    Layer.mergeAll(Layer.empty, ...parts.flatMap((part) => part.edgeBeforeStore ?? []))
  )
)

/** What serves the apps' addresses. */
const edge = Layer.unwrap(
  Effect.map(loadServers, (parts) => mergeLayers(parts.flatMap((part) => part.edge ?? [])))
)

/** What the first start made, if this was the first. */
export class FirstStart extends Context.Service<FirstStart, { readonly made: Bootstrap | undefined }>()(
  "svc/FirstStart"
) {
  static readonly layer = Layer.effect(
    FirstStart,
    Effect.map(bootstrap, (made) => ({ made }))
  )
}

/** A control plane with these roles, and with something that tells what it has counted. */
const planeOf = <E, R>(roles: ReadonlySet<Role>, counted: Layer.Layer<never, E, R>) => {
  const engine = roles.has("engine")
    ? Layer.mergeAll(ReconcileNow.layer.pipe(Layer.provide(worker)), Departures.layer, Revivals.layer)
    : ReconcileNow.layer
  const serving = roles.has("api") ? Layer.mergeAll(server.layer, counted) : counted
  const working = roles.has("engine") ? Layer.mergeAll(Housekeeping.layer, loops) : Housekeeping.layer
  return Layer.mergeAll(serving, working, roles.has("edge") ? edge : Layer.empty).pipe(
    Layer.provide(engine),
    Layer.provide(Outbound.layer),
    Layer.provideMerge(FirstStart.layer),
    Layer.provide(CertificateAuthority.layer),
    Layer.provide(Work.layer),
    Layer.provide(store),
    // Nothing of the above is there before it has been built.
    Layer.provide(roles.has("edge") ? edgeBeforeStore : Layer.empty),
    Layer.provide(machine),
    Layer.provide(servedRegion)
  )
}

/** Everything, by the roles of this process. Building it is starting; closing its scope is stopping. */
export const controlPlane = Layer.unwrap(
  Effect.map(AppConfig, ({ roles }) => planeOf(roles, server.metricsLayer))
)

/** The same without the engine, which has a thread of its own: {@link engineApart}. */
export const controlPlaneBeside = Layer.unwrap(
  Effect.map(AppConfig, ({ roles }) =>
    planeOf(new Set([...roles].filter((role) => role !== "engine")), server.metricsLayer)
  )
)

/** The engine for a thread of its own. What it has counted is asked for by {@link controlPlaneBeside}. */
export const engineApart = planeOf(new Set(["engine"]), Layer.empty)

/** Logs as lines for people or as JSON; logs, traces and metrics to a collector when one is configured. */
export const telemetry = Layer.unwrap(
  Effect.map(AppConfig, ({ logFormat, logLevel, otlpUrl }) => {
    const logs = Logger.layer([logFormat === "json" ? Logger.consoleJson : Logger.consoleLogFmt]).pipe(
      Layer.merge(Layer.succeed(MinimumLogLevel, logLevel))
    )
    // Spans that go nowhere cost a tenth of a request.
    if (otlpUrl === undefined) return Layer.merge(logs, Layer.succeed(TracerEnabled, false))
    return Otlp.layerJson({
      baseUrl: otlpUrl,
      resource: { serviceName: "svc" },
      loggerMergeWithExisting: true
    }).pipe(Layer.provide(FetchHttpClient.layer), Layer.provideMerge(logs))
  })
)
