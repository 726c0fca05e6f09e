/** The loop that gets certificates and renews them. Any number of processes may run it: each name is one's at a time. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Stream from "effect/Stream"
import { RateLimits } from "#src/access/RateLimits.ts"
import { Resolver } from "#src/domains/dns/Resolver.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { Certificates } from "./Certificates.ts"
import { Issuers, makeIssue } from "./issue.ts"
import { type CertificateJob, leaseSeconds, makeCertificateJobs, type Outcome } from "./jobs.ts"

/** Orders wait for their authority most of the time. */
const atOnce = 16

const tries = Metric.counter("svc_certificate_tries_total", {
  description: "Tries to get a certificate for the edge by what they came to, and the type of the error",
  incremental: true
})
const count = Metric.gauge("svc_certificates", {
  description:
    "Certificates of the edge: issued, pending, failed (until somebody asks again), and renewal_failing (issued, and the next one was refused)"
})
const soonest = Metric.gauge("svc_certificate_expiry_seconds", {
  description: "Seconds until the first of the edge's certificates expires"
})

/** Certificates as jobs. */
export const certificatesLoop = Effect.gen(function* () {
  const { notifications } = yield* Db
  const jobs = yield* makeCertificateJobs
  const issue = yield* makeIssue

  const loop: LeasedLoop<CertificateJob, Outcome> = {
    name: "certificates",
    does: "get certificates for the edge",
    idOf: ({ name }) => name,
    orgOf: ({ orgId }) => orgId ?? "",
    atOnce,
    leaseMs: leaseSeconds * 1000,
    claim: ({ most, orgs }) => jobs.claim(most, orgs),
    run: (job) =>
      Effect.tap(issue(job), (outcome) =>
        Metric.update(
          Metric.withAttributes(tries, {
            outcome: outcome._tag.toLowerCase(),
            error: outcome._tag === "Failed" ? labelOf(outcome.error.type) : ""
          }),
          1
        )
      ),
    settle: jobs.settle,
    renew: jobs.renew,
    release: jobs.release,
    nextIn: jobs.nextIn,
    wake: Stream.map(notifications("svc_edge_certificates"), () => undefined)
  }
  return loop
})

/** The types that the protocol knows; an authority may say anything. */
const labelOf = (type: string) => (/^[A-Za-z]{1,40}$/.test(type) ? type : "other")

/**
 * What the platform itself wants: one wildcard below the apps domain, which a change of that setting replaces; and
 * others from whom the settings name now.
 */
export const seeToSettings = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const { wildcard, issuerOf, acme } = yield* Issuers
  const certificates = yield* Certificates
  yield* certificates.want({ orgId: null, name: wildcard })
  yield* repeatable(sql`
    with obsolete as (
      delete from edge_certificate where org_id is null and name <> ${wildcard}
    )
    update edge_certificate c set due_at = now()
    where lease_token is null and error is null and due_at > now() and chain is not null
      and (issuer <> case when name = ${wildcard} then ${issuerOf(wildcard)} else ${issuerOf("a-host")} end
        or (issuer = 'acme' and directory is distinct from ${acme?.directory ?? null}::text))
      and (org_id is not null or name = ${wildcard})
      and not exists (select from edge_certificate_order o where o.name = c.name)`)
})

export const measure = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const [row] = yield* repeatable(sql<{
    readonly issued: number
    readonly pending: number
    readonly failed: number
    readonly renewalFailing: number
    readonly expiry: number | null
  }>`
    select count(*) filter (where state = 'issued')::int as issued, count(*) filter (where state = 'pending')::int as pending,
      count(*) filter (where state = 'failed')::int as failed,
      count(*) filter (where state = 'issued' and error is not null)::int as "renewalFailing",
      extract(epoch from min(not_after) - now())::float8 as expiry
    from edge_certificate`)
  if (row === undefined) return
  const { issued, pending, failed, renewalFailing, expiry } = row
  for (const [state, value] of Object.entries({ issued, pending, failed, renewal_failing: renewalFailing })) {
    yield* Metric.update(Metric.withAttributes(count, { state }), value)
  }
  if (expiry !== null) yield* Metric.update(soonest, expiry)
})

const names = Resolver.layer.pipe(Layer.provide(RateLimits.layer))

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    yield* periodic({ does: "see to the certificate of the apps domain", every: "10 minutes" }, seeToSettings)
    yield* periodic({ does: "count certificates", every: "30 seconds" }, measure)
    yield* leased(yield* certificatesLoop)
  })
).pipe(Layer.provide([Issuers.layer, names, Certificates.layer]))
