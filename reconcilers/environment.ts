/**
 * An environment's managed address: a site of the edge with a host name of its own, which leads to the environment's
 * origin. An environment is ready without an edge: what the edge lacks is told, and keeps nothing else waiting.
 */
import { isDeepStrictEqual } from "node:util"
import * as Effect from "effect/Effect"
import * as IpNetwork from "effect/net/IpNetwork"
import * as Random from "effect/Random"
import { Environment } from "#schemas/environment.ts"
import { AppConfig } from "#src/config.ts"
import { EdgeSites, type SiteLook } from "#src/edge/EdgeSites.ts"
import { isLookedUp, originTarget } from "#src/edge/origin-target.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, type Resource, Retryable, register } from "#src/engine/Reconciler.ts"

/** How soon a name's addresses are looked up again, or whether there is an edge by now; never all at once. */
const lookAgain = Effect.map(
  Random.nextBetween(240, 360),
  (seconds) => `${Math.round(seconds)} seconds` as const
)

export const layer = register(
  Environment,
  { driftInterval: "1 hour", concurrency: 64 },
  Effect.gen(function* () {
    const sites = yield* EdgeSites
    const { outboundAllow } = yield* AppConfig
    const allowed = outboundAllow.map(IpNetwork.fromStringUnsafe)
    const keyOf = ({ orgId, uid }: Pick<Resource, "orgId" | "uid">) => ({ orgId, environmentUid: uid })
    const away = Effect.mapError(
      ({ message, cause }: { readonly message: string; readonly cause?: unknown }) =>
        new Retryable({ message, cause })
    )

    const lookAt = (resource: Pick<Resource, "orgId" | "uid">) =>
      away(externalCall("edge.look", "read")(sites.look(keyOf(resource))))

    const wanted = (origin: string | undefined, { site }: SiteLook) =>
      origin === undefined
        ? // An app of ours takes the requests, if there is one: its own reconciler says where.
          Effect.succeed({ target: site?.isApp === true ? site.target : undefined, trouble: undefined })
        : originTarget(origin, site?.target, allowed)

    return {
      observe: Effect.fnUntraced(function* (resource) {
        const look = yield* lookAt(resource)
        const { site } = look
        if (resource.deleting)
          return site === undefined
            ? absent
            : { _tag: "Present" as const, status: {}, ready: false, differences: [] }
        const { origin } = resource.spec
        const { target, trouble } = yield* wanted(origin, look)
        const hostname = site === undefined ? undefined : sites.hostnameOf(site.label)
        // Names get other addresses now and then: no drift that somebody has to be told of.
        const isMove =
          site?.target !== undefined &&
          target !== undefined &&
          site.target.address !== target.address &&
          isDeepStrictEqual({ ...site.target, address: "" }, { ...target, address: "" })
        const differences = [
          ...(site === undefined || site.hostname !== hostname
            ? [{ field: "/status/address", message: "the edge does not have its managed address" }]
            : []),
          ...((isDeepStrictEqual(site?.target, target) && (origin === undefined || site?.isApp !== true)) ||
          isMove
            ? []
            : [{ field: "/origin", message: "the edge sends requests somewhere else" }])
        ]
        const note = noteOf(look, trouble)
        return {
          _tag: "Present" as const,
          status: hostname === undefined ? {} : { address: sites.urlOf(hostname) },
          ready: true,
          differences,
          ...(site === undefined ? {} : { facts: { label: site.label } }),
          ...(note === undefined ? {} : { note }),
          ...(isMove ? { maintenance: [{ field: "/origin", message: "its name has another address" }] } : {}),
          ...(look.served && !isLookedUp(origin) ? {} : { pollAfter: yield* lookAgain })
        }
      }),
      converge: Effect.fnUntraced(function* (resource) {
        const { origin } = resource.spec
        const { label } = resource.facts
        // Without an origin there is nothing to compare with what is there.
        const { target } =
          origin === undefined ? { target: undefined } : yield* wanted(origin, yield* lookAt(resource))
        yield* away(externalCall("edge.ensure", "write")(sites.ensure(keyOf(resource), { label, target })))
      }),
      remove: (resource) => away(externalCall("edge.remove", "write")(sites.remove(keyOf(resource))))
    }
  })
)

const noteOf = ({ served, fault }: SiteLook, trouble: string | undefined) => {
  if (trouble !== undefined) return { reason: "OriginUnusable", message: `Ready, but ${trouble}` }
  if (served) return undefined
  return {
    reason: "NoEdge",
    message: `Ready, but no edge serves its address${fault === undefined ? "" : `: ${fault}`}`
  }
}
