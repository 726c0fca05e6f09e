/**
 * Certificates as the loop sees them: whose turn it is, what is under way for each, and what became of it.
 *
 * Every statement of a job carries the token of its lease: a process that lost it writes nothing. What is asked of an
 * ACME server is stored before the step after it, so whoever takes a job over goes on where it stopped.
 */
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type { Rooms } from "#src/loops/fair-share.ts"
import { storableText } from "#src/storable.ts"
import { Db, repeatable, type Sql } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import type { EventType } from "#src/webhooks/event-types.ts"
import { emissions } from "#src/webhooks/events.ts"
import { certificatePlace, type Issuer } from "./Certificates.ts"
import type { CertificateError } from "./errors.ts"
import { makeOrderLimits, waitingTypes } from "./order-limits.ts"

/** Longer than a heartbeat of the loop by far; whoever takes a job over begins with a look at what was stored. */
export const leaseSeconds = 60

/** Where the private key of a certificate that is ordered belongs, see `KeyRing`. */
export const orderPlace = (name: string): ReadonlyArray<string> => ["edge-certificate-order", name]

/** An order that was stored. */
export interface StoredOrder {
  readonly directory: string
  readonly url: string
  /** PKCS #8 in PEM. */
  readonly privateKeyPem: Redacted.Redacted
  /** Since it was stored. */
  readonly ageSeconds: number
}

/** A certificate that this process may see to now, and no other until the lease ends. */
export interface CertificateJob {
  readonly orgId: string | null
  readonly name: string
  readonly issuer: Issuer | undefined
  /** Of the ACME authority that issued it. */
  readonly directory: string | undefined
  /** The chain that is served. */
  readonly chain: string | undefined
  readonly fingerprint: string | undefined
  readonly renewAt: Date | undefined
  /** There is none, or it is time for the next. */
  readonly due: boolean
  /** Tries since the last that went well, this one not counted. */
  readonly failures: number
  readonly order: StoredOrder | undefined
  readonly lease: bigint
}

/** A certificate that was got. */
export interface Obtained {
  readonly issuer: Issuer
  /** Of the ACME authority, if it was one. */
  readonly directory?: string
  readonly chain: string
  readonly privateKeyPem: Redacted.Redacted
  readonly fingerprint: string
  readonly notBefore: Date
  readonly notAfter: Date
  /** Undefined: somebody else renews it. */
  readonly renewAt: Date | undefined
}

/** What became of a job. Times are in seconds from now. */
export type Outcome =
  /** `again`: the next look, where there is something to look for before it is renewed. */
  | { readonly _tag: "Issued"; readonly certificate: Obtained; readonly again: number | undefined }
  /** What is there is good. */
  | { readonly _tag: "Kept"; readonly renewAt: Date | undefined; readonly again: number | undefined }
  /** The order is under way, or, with an error that says so, may not be placed yet. */
  | { readonly _tag: "Waiting"; readonly again: number; readonly error?: CertificateError | undefined }
  | {
      readonly _tag: "Failed"
      readonly error: CertificateError
      /** Undefined: not until somebody asks. */
      readonly again: number | undefined
      /** The issuer wants to hear nothing before that, whoever asks. */
      readonly retryAfter: number | undefined
      /** The order is of no use any more. */
      readonly orderIsOver: boolean
    }

interface Row {
  readonly orgId: string | null
  readonly name: string
  readonly issuer: Issuer | null
  readonly chain: string | null
  readonly fingerprint: string | null
  readonly renewAt: Date | null
  readonly due: boolean
  readonly failures: number
  readonly lease: bigint
  readonly issuedBy: string | null
  readonly directory: string | null
  readonly orderUrl: string | null
  readonly keyId: string | null
  readonly sealed: Uint8Array | null
  readonly orderAge: number | null
}

/**
 * What webhooks are told of the rows that a try which failed has left in the CTE `stored`: the first failure of a renewal,
 * and none until one has gone well. Nobody has to be told of a name's first certificate: its domain is not active yet.
 */
const failedRenewals = (sql: Sql) => sql`
  select gen_random_uuid() as event_id, s.org_id, r.project_id, ${"certificate.renewal_failed" satisfies EventType} as type,
    jsonb_build_object('domainId', r.uid, 'hostname', s.name, 'environment', r.environment, 'expiresAt', s.not_after,
      'error', jsonb_build_object('type', s.error_type, 'message', s.error)) as data
  from stored s join domain_claim c on c.hostname = s.name and c.org_id = s.org_id
    join resource r on r.org_id = c.org_id and r.uid = c.domain_uid
  where s.chain is not null and s.attempt = 1`

/** A moment in which nothing is tried, even where a clock is wrong. */
const shortestRest = 30

export const makeCertificateJobs = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const ring = yield* KeyRing
  const limits = makeOrderLimits(sql)

  const orderOf = (row: Row) =>
    row.directory === null || row.orderUrl === null || row.keyId === null || row.sealed === null
      ? Effect.succeed(undefined)
      : Effect.map(
          ring.open(orderPlace(row.name), { keyId: row.keyId, bytes: row.sealed }),
          (privateKeyPem): StoredOrder | undefined => ({
            directory: row.directory ?? "",
            url: row.orderUrl ?? "",
            privateKeyPem,
            ageSeconds: row.orderAge ?? 0
          })
        ).pipe(
          // Without its key the order is of no use: another one is made.
          Effect.catch((error) =>
            Effect.as(
              Effect.logWarning(`the order of a certificate for ${row.name} is lost`, error),
              undefined
            )
          )
        )

  /** Stored only while the lease holds. */
  const held = ({ name, lease }: CertificateJob) =>
    sql`select from edge_certificate where name = ${name} and lease_token = ${lease} for key share`
  /** Null, which `least` and `greatest` pass over, for no time. */
  const rest = (seconds: number | undefined) => sql`now() + make_interval(secs => ${seconds ?? null}::float8)`

  return {
    // Index: edge_certificate_due. The lease is the time at which it is due again, should its holder vanish.
    claim: (most: number, { holders, others }: Rooms) => {
      const rooms = Object.fromEntries([...holders].map(([org, { room }]) => [org, room]))
      return Effect.flatMap(
        repeatable(sql<Row>`
          with chosen as materialized (
            select name from (
              select name, due_at, org_id, row_number() over (partition by org_id order by due_at) as nth
              from edge_certificate where due_at <= now()) d
            where nth <= coalesce((${sql.json(rooms)}::jsonb ->> coalesce(org_id::text, ''))::int, ${others}::int)
            order by due_at limit ${most}::int
          ), free as materialized (
            select name from edge_certificate join chosen using (name) where due_at <= now() for update of edge_certificate skip locked
          ), leased as (
            update edge_certificate set lease_token = nextval('lease_token'), due_at = ${rest(leaseSeconds)}
            where name in (select name from free)
            returning *
          )
          select c.org_id as "orgId", name, c.issuer, c.directory as "issuedBy", c.chain, c.fingerprint, c.renew_at as "renewAt",
            c.chain is null or coalesce(c.renew_at <= now(), false) as due, c.attempt as failures,
            c.lease_token as lease, o.directory, o.order_url as "orderUrl", o.key_id as "keyId", o.sealed,
            extract(epoch from now() - o.created_at)::float8 as "orderAge"
          from leased c left join edge_certificate_order o using (name)`),
        (rows) =>
          Effect.forEach(rows, (row) =>
            Effect.map(
              orderOf(row),
              (order): CertificateJob => ({
                orgId: row.orgId,
                name: row.name,
                issuer: row.issuer ?? undefined,
                directory: row.issuedBy ?? undefined,
                chain: row.chain ?? undefined,
                fingerprint: row.fingerprint ?? undefined,
                renewAt: row.renewAt ?? undefined,
                due: row.due,
                failures: row.failures,
                order,
                lease: row.lease
              })
            )
          )
      )
    },
    renew: (jobs: ReadonlyArray<CertificateJob>) =>
      Effect.map(
        repeatable(sql<{ readonly name: string }>`
          update edge_certificate c set due_at = ${rest(leaseSeconds)}
          from jsonb_to_recordset(${sql.json(jobs.map(({ name, lease }) => ({ name, lease: `${lease}` })))}::jsonb)
            as j(name text, lease bigint)
          where c.name = j.name and c.lease_token = j.lease
          returning c.name`),
        (rows): ReadonlySet<string> => new Set(rows.map(({ name }) => name))
      ),
    release: (jobs: ReadonlyArray<CertificateJob>) =>
      Effect.asVoid(
        repeatable(sql`
          update edge_certificate c set due_at = now(), lease_token = null
          from jsonb_to_recordset(${sql.json(jobs.map(({ name, lease }) => ({ name, lease: `${lease}` })))}::jsonb)
            as j(name text, lease bigint)
          where c.name = j.name and c.lease_token = j.lease`)
      ),
    /** Milliseconds. */
    nextIn: Effect.map(
      repeatable(sql<{ readonly next: number | null }>`
        select extract(epoch from min(due_at) - now())::float8 * 1000 as next from edge_certificate`),
      ([row]) => row?.next ?? undefined
    ),

    /** Why an order may not be placed now; undefined: it may. `most` is how many an organization may place in a while. */
    orderWait: limits.wait,
    /** Before the order is finalized; it counts for its organization. False: the lease is lost. */
    keepOrder: (
      job: CertificateJob,
      { directory, url, privateKeyPem }: Pick<StoredOrder, "directory" | "url" | "privateKeyPem">,
      most: number
    ) => {
      const { keyId, bytes } = ring.seal(orderPlace(job.name), privateKeyPem)
      return Effect.map(
        repeatable(sql`
          with held as (${held(job)}), kept as (
            insert into edge_certificate_order (name, directory, order_url, key_id, sealed)
            select ${job.name}, ${directory}, ${url}, ${keyId}, ${bytes} where exists (select from held)
            on conflict (name) do update set directory = excluded.directory, order_url = excluded.order_url,
              key_id = excluded.key_id, sealed = excluded.sealed, created_at = now()
            returning name
          ), counted as (${limits.count(job, most, "kept")})
          select from kept`),
        (rows) => rows.length > 0
      )
    },
    /** What every edge answers until it is removed, for an hour at most. False: the lease is lost. */
    putChallenge: (
      job: CertificateJob,
      challenge: { readonly token: string; readonly keyAuthorization: string }
    ) =>
      Effect.map(
        repeatable(sql`
          with held as (${held(job)})
          insert into edge_challenge (host, token, key_authorization, expires_at)
          select ${job.name}, ${challenge.token}, ${challenge.keyAuthorization}, now() + interval '1 hour'
          where exists (select from held)
          on conflict (host, token) do update
            set key_authorization = excluded.key_authorization, expires_at = excluded.expires_at
          returning 1`),
        (rows) => rows.length > 0
      ),
    removeChallenge: (job: CertificateJob, token: string) =>
      Effect.asVoid(
        repeatable(sql`delete from edge_challenge where host = ${job.name} and token = ${token}`)
      ),

    settle: (job: CertificateJob, outcome: Outcome) => {
      const mine = sql`name = ${job.name} and lease_token = ${job.lease}`
      switch (outcome._tag) {
        case "Issued": {
          const { certificate, again } = outcome
          const { keyId, bytes } = ring.seal(certificatePlace(job.name), certificate.privateKeyPem)
          const renewAt = certificate.renewAt ?? null
          return Effect.asVoid(
            repeatable(sql`
              with stored as (
                update edge_certificate set state = 'issued', issuer = ${certificate.issuer},
                  directory = ${certificate.directory ?? null}, chain = ${certificate.chain},
                  key_id = ${keyId}, sealed = ${bytes}, fingerprint = ${certificate.fingerprint},
                  not_before = ${certificate.notBefore}, not_after = ${certificate.notAfter}, renew_at = ${renewAt},
                  error = null, error_type = null, retry_after = null, attempt = 0, lease_token = null,
                  due_at = greatest(least(${renewAt}::timestamptz, ${rest(again)}), ${rest(shortestRest)})
                where ${mine} returning name
              )
              delete from edge_certificate_order o using stored s where o.name = s.name`)
          )
        }
        case "Kept": {
          const renewAt = outcome.renewAt ?? null
          return Effect.asVoid(
            repeatable(sql`
              update edge_certificate set renew_at = ${renewAt}, error = null, error_type = null, retry_after = null,
                attempt = 0, lease_token = null,
                due_at = greatest(least(${renewAt}::timestamptz, ${rest(outcome.again)}), ${rest(shortestRest)})
              where ${mine}`)
          )
        }
        case "Waiting": {
          const { again, error } = outcome
          // An earlier refusal is still of interest while the next order is under way; an earlier wait is over.
          const earlier = (column: "error" | "error_type") =>
            sql`case when error_type = any(${[...waitingTypes]}::text[]) then null else ${sql(column)} end`
          return Effect.asVoid(
            repeatable(sql`
              update edge_certificate set lease_token = null, due_at = ${rest(again)},
                error = coalesce(${error?.message ?? null}::text, ${earlier("error")}),
                error_type = coalesce(${error?.type ?? null}::text, ${earlier("error_type")})
              where ${mine}`)
          )
        }
        case "Failed": {
          const { error, again, retryAfter } = outcome
          return Effect.asVoid(
            repeatable(sql`
              with stored as (
                update edge_certificate set error = ${storableText(error.message)}, error_type = ${storableText(error.type, 100)},
                  attempt = attempt + 1, tried_at = now(), lease_token = null,
                  state = case when chain is not null then 'issued' when ${again === undefined} then 'failed' else 'pending' end,
                  due_at = ${rest(again)},
                  retry_after = ${rest(retryAfter)}
                where ${mine} returning *
              ), over as (
                delete from edge_certificate_order o using stored s where o.name = s.name and ${outcome.orderIsOver}
              ), told as (${failedRenewals(sql)}),
              ${emissions(sql, "told")}
              select from told`)
          )
        }
      }
    }
  }
})

export type CertificateJobs = Effect.Success<typeof makeCertificateJobs>
