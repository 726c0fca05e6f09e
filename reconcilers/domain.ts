/**
 * A custom domain: DNS leads its name to the environment, a certificate is there for it, and every edge serves both. What
 * this keeps true: the edge knows the name exactly while it is proved, and what it says of itself is what visitors meet.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import { Domain, type DomainSpec, type DomainStatus, hostnameFault } from "#schemas/domain.ts"
import { Claims, challengeName } from "#src/domains/Claims.ts"
import { destinations } from "#src/domains/destinations.ts"
import { pointsHere } from "#src/domains/dns/points-here.ts"
import { Resolver } from "#src/domains/dns/Resolver.ts"
import { judge, nextLook, type Seen } from "#src/domains/judge.ts"
import { makeRefusal } from "#src/domains/names.ts"
import { Probe } from "#src/domains/Probe.ts"
import { Certificates } from "#src/edge/certificates/Certificates.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { externalCall } from "#src/engine/external-call.ts"
import {
  absent,
  type Reconciler,
  type Resource,
  Retryable,
  register,
  Terminal
} from "#src/engine/Reconciler.ts"

const retryable = Effect.mapError(
  (error: { readonly message: string }) => new Retryable({ message: error.message })
)

const overtaken = new Retryable({ message: "A later reconcile works on the domain; this one stops" })

const reconciler = Effect.gen(function* () {
  const claims = yield* Claims
  const sites = yield* EdgeSites
  const certificates = yield* Certificates
  const resolver = yield* Resolver
  const probe = yield* Probe
  const destinationOf = yield* destinations
  const refusalOf = yield* makeRefusal

  const hostOf = ({ orgId, uid, name }: Resource) => ({ orgId, domainUid: uid, hostname: name })
  const wishOf = (resource: Resource<DomainSpec>) => ({
    ...hostOf(resource),
    environmentUid: resource.parentUid ?? "",
    redirectTo: resource.spec.redirectTo,
    hstsSeconds: resource.spec.hstsSeconds ?? 0
  })

  /** What DNS says, and whether the challenge is met where it has to be. */
  const lookUp = Effect.fnUntraced(
    function* ({ orgId, name }: Resource, claim: Seen["claim"], managed: string) {
      const names = resolver.of(orgId)
      const dns = yield* pointsHere(names, name, destinationOf(managed))
      const asked =
        claim.provedAge === undefined && dns._tag === "Here" && (claim.contested || dns.by === "addresses")
      const texts = asked ? (yield* names.txt(challengeName(name))).records : []
      return { dns, shown: !asked || texts.some((text) => text.trim() === claim.challenge) }
    },
    Effect.timeoutOrElse({
      duration: "20 seconds",
      orElse: () =>
        Effect.succeed({
          dns: { _tag: "Unknown", message: "DNS did not answer in time" },
          shown: false
        } as const)
    }),
    Effect.catchTag("DnsUnknown", ({ message }) =>
      Effect.succeed({ dns: { _tag: "Unknown", message }, shown: false } as const)
    )
  )

  const hostDifference = Effect.fnUntraced(function* (resource: Resource<DomainSpec>) {
    const found = Option.getOrUndefined(yield* retryable(sites.findHost(hostOf(resource))))
    const wish = wishOf(resource)
    if (found === undefined) return { field: "/host", message: "the edge does not know the host name" }
    return found.environmentUid === wish.environmentUid &&
      found.redirectTo === wish.redirectTo &&
      (found.hstsSeconds ?? 0) === wish.hstsSeconds
      ? undefined
      : { field: "/host", message: "the edge has other options for the host name" }
  })

  const result: Reconciler<DomainSpec, DomainStatus> = {
    observe: Effect.fnUntraced(function* (resource) {
      const { orgId, uid, name, parentUid, status, deleting } = resource
      const claim = Option.getOrUndefined(yield* retryable(claims.find({ orgId, uid })))
      const nothing: DomainStatus = {
        state: "pending_dns",
        verificationErrors: null,
        certificateExpiresAt: null
      }
      if (deleting) {
        const host = yield* retryable(sites.findHost(hostOf(resource)))
        return claim === undefined && Option.isNone(host)
          ? absent
          : { _tag: "Present", status: status ?? nothing, ready: false, differences: [] }
      }
      const fault = hostnameFault(name) ?? refusalOf(name)
      if (fault !== undefined)
        return yield* new Terminal({ reason: "NameRefused", message: `The host name ${fault}` })
      if (claim === undefined || claim.lapsed) {
        const message = `DNS did not lead ${name} here in time, and ${claim === undefined ? "somebody else has added it since" : "it is free for others"}. Remove the domain; it can be added again`
        return yield* new Terminal({ reason: "ClaimLapsed", message })
      }
      const hosts = yield* retryable(sites.managedHosts(orgId, parentUid === null ? [] : [parentUid]))
      const target = hosts.get(parentUid ?? "")
      if (target === undefined) {
        return {
          _tag: "Present",
          status: nothing,
          ready: false,
          differences: [],
          reason: "PendingDns",
          message: "The environment gets its address just now",
          pollAfter: "1 second"
        }
      }
      const [{ dns, shown }, host, certificate] = yield* Effect.all(
        [
          externalCall("domain.resolve", "read")(lookUp(resource, claim, target)),
          hostDifference(resource),
          Effect.map(retryable(certificates.find({ orgId, name })), Option.getOrUndefined)
        ],
        { concurrency: 3 }
      )
      if (certificate?.state === "failed")
        return yield* new Terminal({
          reason: "CertificateRefused",
          message: `The certificate was refused: ${certificate.error?.message ?? "for good"}`
        })
      const served =
        certificate?.state === "issued" && host === undefined
          ? yield* retryable(externalCall("domain.handshake", "read")(probe.served(name)))
          : ({ _tag: "Not", message: "It is not served yet" } as const)
      const before = status?.state
      const verdict = judge({ hostname: name, claim, dns, shown, host, certificate, served, before })
      return {
        _tag: "Present",
        ...verdict,
        ...(verdict.ready ? {} : { pollAfter: nextLook(claim, verdict.reason, yield* Random.next) * 1_000 })
      }
    }),
    converge: Effect.fnUntraced(function* (resource, observation) {
      if (observation._tag === "Absent") return
      const { orgId, uid, name, fence } = resource
      const open = new Set(
        [...observation.differences, ...(observation.maintenance ?? [])].map(({ field }) => field)
      )
      const step = <A>(call: string, self: Effect.Effect<A, { readonly message: string }>) =>
        retryable(externalCall(call, "write")(self))
      if (!(yield* retryable(claims.hold({ orgId, uid }, fence)))) return yield* overtaken
      if (open.has("/dns") && !(yield* step("domain.prove", claims.prove({ orgId, uid }))))
        return yield* overtaken
      if (open.has("/host")) yield* step("domain.put", sites.putHost(wishOf(resource)))
      if (open.has("/certificate")) yield* step("domain.certificate", certificates.want({ orgId, name }))
    }),
    remove: Effect.fnUntraced(function* (resource) {
      const { orgId, uid, name, fence } = resource
      const step = <A>(call: string, self: Effect.Effect<A, { readonly message: string }>) =>
        retryable(externalCall(call, "write")(self))
      const claim = yield* retryable(claims.find({ orgId, uid }))
      if (Option.isSome(claim) && !(yield* retryable(claims.hold({ orgId, uid }, fence))))
        return yield* overtaken
      yield* step("domain.withdraw", sites.removeHost(hostOf(resource)))
      // Another domain of the organization that has the name by now needs its certificate.
      const heir = Option.isNone(claim) && (yield* retryable(claims.isHeld(orgId, name)))
      if (!heir) yield* step("domain.certificate", certificates.drop({ orgId, name }))
      if (Option.isSome(claim)) yield* step("domain.release", claims.release({ orgId, uid }))
    })
  }
  return result
})

export const layer = register(Domain, { driftInterval: "5 minutes", concurrency: 16 }, reconciler)
