/** Certificates on a store of their own, with an authority in this process; each job is taken by hand. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import { AppConfig } from "#src/config.ts"
import { type CaaRecord, DnsUnknown, Resolver } from "#src/domains/dns/Resolver.ts"
import { Certificates } from "#src/edge/certificates/Certificates.ts"
import { Issuers, makeIssue } from "#src/edge/certificates/issue.ts"
import { makeCertificateJobs, type Outcome } from "#src/edge/certificates/jobs.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { makeFairShare } from "#src/loops/fair-share.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { testDb } from "#test/setup/database.ts"

const nobody = () => Effect.fail(new DnsUnknown({ message: "nobody is asked here" }))

/** CAA records by name; any other name has none. */
export const caa = new Map<string, ReadonlyArray<CaaRecord>>()
const resolver = Layer.succeed(Resolver, {
  of: () => ({
    cname: nobody,
    addresses: nobody,
    txt: nobody,
    caa: (name) => Effect.succeed({ records: caa.get(name) ?? [], exists: true })
  })
})

/** The store with its secrets and the platform's own authority. */
export const store = CertificateAuthority.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(PlatformSecrets.layer, Certificates.layer, resolver)),
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

/** A process that gets certificates by these settings, until the scope closes. */
export const makeProcess = Effect.fnUntraced(function* (variables: Readonly<Record<string, string>>) {
  const context = yield* Layer.build(
    Issuers.layer.pipe(Layer.provideMerge(AppConfig.layerWith({}, variables)))
  )
  const quiet = Logger.layer([])
  const jobs = yield* makeCertificateJobs
  const issue = yield* Effect.provide(makeIssue, context)
  const rooms = makeFairShare(1_000).rooms()
  const claim = jobs.claim(1_000, rooms)
  return {
    issuers: Context.get(context, Issuers),
    jobs,
    issue,
    claim,
    /** Takes what is due, each to its end; answers what became of each, by name. */
    round: Effect.gen(function* () {
      const outcomes = new Map<string, Outcome>()
      for (const job of yield* claim) {
        const outcome = yield* issue(job)
        yield* jobs.settle(job, outcome)
        outcomes.set(job.name, outcome)
      }
      return outcomes
    }).pipe(Effect.provide(quiet))
  }
})

/** What is stored of a name, and ways to change it. */
export const handleOf = Effect.fnUntraced(function* (orgId: string | null, name: string) {
  const certificates = yield* Certificates
  const { engine: sql } = yield* Db
  return {
    name,
    want: certificates.want({ orgId, name }),
    hurry: certificates.hurry({ orgId, name }),
    drop: certificates.drop({ orgId, name }),
    find: Effect.map(certificates.find({ orgId, name }), Option.getOrThrow),
    /** Its lease ends, or its time comes. */
    due: Effect.orDie(sql`update edge_certificate set due_at = now() where name = ${name}`),
    renewNow: Effect.orDie(
      sql`update edge_certificate set due_at = now(), renew_at = now() where name = ${name}`
    ),
    /** Seconds from the last try that failed to the next one. */
    pause: Effect.map(
      Effect.orDie(
        sql<{ readonly seconds: number | null }>`
          select extract(epoch from due_at - tried_at)::float8 as seconds from edge_certificate where name = ${name}`
      ),
      ([row]) => row?.seconds
    ),
    order: Effect.map(
      Effect.orDie(
        sql<{
          readonly url: string
        }>`select order_url as url from edge_certificate_order where name = ${name}`
      ),
      ([row]) => row?.url
    )
  }
})
