/** The HTTP server of the API, and the one for metrics, which listens on loopback only. */
import { createServer } from "node:http"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as HttpMiddleware from "effect/http/HttpMiddleware"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import type * as HttpApiGroup from "effect/http-api/HttpApiGroup"
import * as Layer from "effect/Layer"
import * as PrometheusMetrics from "effect/observability/PrometheusMetrics"
import { Access } from "#src/access/Access.ts"
import { AccessRecords } from "#src/access/AccessRecords.ts"
import { AuditWriter } from "#src/access/AuditWriter.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { layerRegions } from "#src/catalog/regions.ts"
import { AppConfig } from "#src/config.ts"
import * as metrics from "#src/engine/metrics.ts"
import { WorkStore } from "#src/engine/WorkStore.ts"
import { type ApiCore, mergeLayers, type Server, type StartError } from "#src/feature.ts"
import { features, loadServers } from "#src/features.ts"
import { Idempotency } from "#src/store/Idempotency.ts"
import * as authorize from "./authorize.ts"
import { Cursors } from "./cursor.ts"
import { Api } from "./definition/api.ts"
import { Operation } from "./definition/operation.ts"
import * as docs from "./docs.ts"
import { listener } from "./listener.ts"
import { mergePages, OtherMetrics } from "./other-metrics.ts"
import * as publicHandler from "./public-handler.ts"
import { Replay } from "./replay.ts"
import * as routing from "./routing.ts"

/** What every feature's handlers may use besides the services of the whole process. */
const services = Layer.mergeAll(authorize.layer, publicHandler.layer).pipe(
  Layer.provideMerge(
    Layer.mergeAll(
      Access.layer,
      AccessRecords.layer,
      AuditWriter.layer,
      Cursors.layer,
      RateLimits.layer,
      layerRegions,
      Replay.layer.pipe(Layer.provide(Idempotency.layer))
    )
  )
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

type Part = (typeof features)[number]
type Handlers = HttpApiGroup.ToService<"svc", Part["groups"][number] | Part["publicGroups"][number]>

/**
 * The handlers of all operations. That a feature brings those of its groups is checked where it is defined. In a list
 * of layers the compiler loses what they provide, because it takes one that provides nothing for any of them. What
 * they need at each request they have from when they are made.
 */
const handlersOf = (parts: ReadonlyArray<Server>) =>
  mergeLayers(parts.map(({ handlers }) => handlers)) as Layer.Layer<
    Handlers,
    StartError,
    HttpRouter.Request.Without<ApiCore>
  >

/**
 * The handlers of all groups as one service. Whatever surrounds the server is copied for every request, and the groups are
 * more than all the rest; nothing but the routes of the API asks for them.
 */
class AllHandlers extends Context.Service<AllHandlers, Context.Context<Handlers>>()("svc/api/AllHandlers") {
  static readonly layer = Layer.effect(
    AllHandlers,
    Effect.map(Effect.context<Handlers>(), ({ mapUnsafe }) =>
      Context.makeUnsafe<Handlers>(
        new Map(Object.values(Api.groups).map(({ key }) => [key, mapUnsafe.get(key)]))
      )
    )
  )
}

/** Traces hold addresses of requests, and some addresses hold a secret. */
const secretPaths = features.flatMap((feature) => feature.untraced)
const untraced = Layer.succeed(
  HttpMiddleware.TracerDisabledWhen,
  ({ url }) =>
    secretPaths.some((path) => url.startsWith(path)) || url.includes("token=") || url.includes("code=")
)

/** Serves the API while its scope is open. Requests under way get a few seconds when it closes. */
export const layer = Layer.unwrap(
  Effect.gen(function* () {
    yield* everyOperationIsDescribed
    const { host, port } = yield* AppConfig
    const parts = yield* loadServers
    const routes = Layer.mergeAll(
      HttpApiBuilder.layer(Api).pipe(Layer.provide(Layer.effectContext(AllHandlers))),
      mergeLayers(parts.flatMap(({ routes }) => routes ?? [])),
      docs.layer,
      routing.layer
    )
    const callers = mergeLayers(parts.flatMap(({ callers }) => callers ?? []))
    return HttpRouter.serve(callers.pipe(Layer.provideMerge(routes)), {
      disableLogger: true,
      disableListenLog: true,
      // One address for one thing.
      routerConfig: { caseSensitive: true, ignoreDuplicateSlashes: false }
    }).pipe(
      // Around the router: what is built within it is shared with nothing else in the process.
      Layer.provide(AllHandlers.layer.pipe(Layer.provide(handlersOf(parts)))),
      Layer.provide(services),
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
    const others = yield* OtherMetrics
    const text = mergePages([yield* PrometheusMetrics.format(), ...(yield* others)])
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
