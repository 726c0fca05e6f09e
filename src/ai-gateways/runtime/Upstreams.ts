/**
 * The operator's upstreams while the process runs: their connections, how many calls are under way, and which of them
 * are left alone because they fail.
 */
import * as net from "node:net"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberSet from "effect/FiberSet"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Redacted from "effect/Redacted"
import type { buildConnector, Dispatcher } from "undici"
import type { AiModel } from "#schemas/ai-gateway.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { ModelUpstreams } from "../ModelUpstreams.ts"
import { settings } from "../settings.ts"
import { type Breaker, makeBreaker } from "./breaker.ts"
import { anthropic } from "./dialects/anthropic.ts"
import type { Dialect } from "./dialects/dialect.ts"
import { openai } from "./dialects/openai.ts"
import { type Exchange, type ExchangeRequest, startExchange } from "./exchange.ts"
import type { Upstream } from "./upstreams-file.ts"

export interface LiveUpstream {
  readonly neutralModel: AiModel
  readonly settings: Upstream
  readonly dialect: Dialect
  readonly breaker: Breaker
  readonly key: string
  /** Calls under way in this process. */
  readonly active: () => number
  /** `sent` is called when the request goes out, for which there has to be a connection. */
  readonly start: (request: ExchangeRequest, sent: () => void) => Exchange
}

const connectMs = 10_000
const dialects = { openai, anthropic }

const gauges = new WeakMap<LiveUpstream, Metric.Gauge<number>>()
const gaugeOf = (upstream: LiveUpstream) => {
  const gauge =
    gauges.get(upstream) ??
    Metric.gauge("svc_ai_upstream_failing", {
      description: "Whether an upstream of AI gateways is left alone because it fails",
      attributes: { upstream: upstream.settings.name, model: upstream.neutralModel }
    })
  gauges.set(upstream, gauge)
  return gauge
}

export class Upstreams extends Context.Service<
  Upstreams,
  {
    /** In the order in which they are tried. */
    readonly of: (model: AiModel) => ReadonlyArray<LiveUpstream>
    readonly all: ReadonlyArray<LiveUpstream>
  }
>()("svc/ai-gateways/Upstreams") {
  static readonly layer = Layer.effect(
    Upstreams,
    Effect.gen(function* () {
      const outbound = yield* Outbound
      const clock = yield* Clock.Clock
      const now = () => clock.currentTimeMillisUnsafe()
      const run = yield* FiberSet.makeRuntime()
      const byModel = new Map<AiModel, ReadonlyArray<LiveUpstream>>()

      for (const [neutralModel, list] of (yield* settings).upstreams) {
        const live: Array<LiveUpstream> = []
        for (const upstream of list) {
          yield* outbound.checkAddress(upstream.address)
          // Much to load, and nothing where there are no upstreams.
          const { buildConnector, Pool } = yield* Effect.promise(() => import("undici"))
          const { origin, pathname } = new URL(upstream.address)
          const base = pathname.replace(/\/+$/, "")
          const pool: Dispatcher = yield* Effect.acquireRelease(
            Effect.sync(
              () =>
                new Pool(origin, {
                  connect: connectorTo(buildConnector, origin, outbound, run),
                  connections: upstream.limits.concurrency,
                  pipelining: 1,
                  allowH2: false,
                  keepAliveTimeout: 4_000,
                  maxHeaderSize: 32 * 1024
                })
            ),
            (pool) => Effect.promise(() => pool.destroy().catch(() => {}))
          )
          let active = 0
          live.push({
            neutralModel,
            settings: upstream,
            dialect: dialects[upstream.dialect],
            breaker: makeBreaker(),
            key: Redacted.value(upstream.key),
            active: () => active,
            start: (request, sent) => {
              active++
              return startExchange(pool, { ...request, path: base + request.path }, now, sent, () => {
                active--
              })
            }
          })
        }
        byModel.set(neutralModel, live)
      }
      const all = [...byModel.values()].flat()
      return Upstreams.of({ of: (model) => byModel.get(model) ?? [], all })
    })
  )
}

/** Where {@link Upstreams} is known: in processes that make calls, what they have seen. */
export const modelUpstreams = Layer.effect(
  ModelUpstreams,
  Effect.gen(function* () {
    const upstreams = yield* Upstreams
    return ModelUpstreams.of({
      of: (model, orgId) =>
        Effect.map(Clock.currentTimeMillis, (now) =>
          upstreams.of(model).map(({ settings, breaker }) => ({
            name: settings.name,
            failing: breaker.isOpen(now, orgId)
          }))
        )
    })
  })
)

export const showBreaker = (upstream: LiveUpstream, now: number) =>
  Metric.update(gaugeOf(upstream), upstream.breaker.isOpen(now) ? 1 : 0)

/** Connects to an address that was judged, and to no other that the name may have a moment later. */
const connectorTo = (
  build: typeof buildConnector,
  origin: string,
  outbound: Outbound["Service"],
  run: (effect: Effect.Effect<unknown>) => unknown
): buildConnector.connector => {
  const connect = (
    options: buildConnector.Options,
    reached: { readonly addresses: ReadonlyArray<string>; readonly connector: buildConnector.connector },
    callback: buildConnector.Callback
  ): void => {
    const [address, ...others] = reached.addresses
    if (address === undefined) {
      callback(new Error("There is no address"), null)
      return
    }
    const host = options.hostname.replaceAll(/^\[|\]$/g, "")
    const secure = options.protocol === "https:" && net.isIP(host) === 0 ? { servername: host } : {}
    reached.connector({ ...options, ...secure, hostname: address }, (error, socket) => {
      if (error === null) callback(null, socket)
      else if (others.length > 0) connect(options, { ...reached, addresses: others }, callback)
      else callback(error, null)
    })
  }
  let connector: buildConnector.connector | undefined
  return (options, callback) => {
    run(
      Effect.map(Effect.exit(outbound.reach(origin)), (found) => {
        if (Exit.isFailure(found)) return callback(new Error("The address may not be reached"), null)
        const { addresses, secureContext } = found.value
        connector ??= build({
          allowH2: false,
          timeout: connectMs,
          ...(secureContext === undefined ? {} : { secureContext })
        })
        connect(options, { addresses, connector }, callback)
      })
    )
  }
}
