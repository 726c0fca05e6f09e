/**
 * The certificates that the edge serves: which names need one, what is known of each, and the files for those who serve.
 *
 * Features say which names they want; a loop (`loop.ts`) sees to it that there is a certificate and that it never runs
 * out. Nodes hear `certificate <name>` on `svc_edge` whenever one has changed, and read it here.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { batched } from "#src/access/batching.ts"
import { answered } from "#src/engine/answered.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { type CertificateError, certificateErrorOf } from "./errors.ts"

/** Where the private key of a certificate belongs, see `KeyRing`. */
export const certificatePlace = (name: string): ReadonlyArray<string> => ["edge-certificate", name]

export interface CertificateName {
  /** Null: the platform's own. */
  readonly orgId: string | null
  /** A host name in lower case, in its ASCII form, or `*.` and one. */
  readonly name: string
}

export type Issuer = "internal" | "acme" | "operator"

export interface Certificate extends CertificateName {
  /**
   * - `pending`: there is none yet, and somebody is at it.
   * - `issued`: there is one; it is served, also when a renewal fails and `error` says why.
   * - `failed`: there is none, and nobody tries until {@link Certificates.hurry}.
   */
  readonly state: "pending" | "issued" | "failed"
  readonly issuer: Issuer | undefined
  /** SHA-256 of the certificate itself, in hexadecimal. */
  readonly fingerprint: string | undefined
  readonly expiresAt: Date | undefined
  readonly renewAt: Date | undefined
  /** Why the last try came to nothing; undefined: it did not. */
  readonly error: CertificateError | undefined
  /** Undefined: nobody tries until somebody asks. */
  readonly nextLookAt: Date | undefined
}

/** What a server of TLS loads. */
export interface CertificateFile {
  readonly name: string
  readonly fingerprint: string
  /** The chain, the leaf first, then its private key, all in PEM and without empty lines. */
  readonly pem: Redacted.Redacted
}

export interface ChallengeName {
  readonly host: string
  readonly token: string
}

/** Files that are opened at a time. */
const batch = 200
/** Authorities wait for some ten seconds. */
const challengeMs = 5_000

export class Certificates extends Context.Service<
  Certificates,
  {
    /** From now on there is to be a certificate of this name. A name that was another organization's moves to this one. */
    readonly want: (certificate: CertificateName) => Effect.Effect<void, StoreUnavailable>
    readonly find: (
      certificate: CertificateName
    ) => Effect.Effect<Option.Option<Certificate>, StoreUnavailable>
    /**
     * What was refused or waits is tried now, or as soon as its issuer allows; from the second failure on after a rest,
     * since every try counts for the account that all organizations share. One that is well stays as it is.
     */
    readonly hurry: (certificate: CertificateName) => Effect.Effect<void, StoreUnavailable>
    /** It is needed no longer. */
    readonly drop: (certificate: CertificateName) => Effect.Effect<void, StoreUnavailable>
    /** For nodes of the edge: every certificate there is, as its fingerprint by its name. */
    readonly served: Effect.Effect<ReadonlyMap<string, string>, StoreUnavailable>
    /** For nodes of the edge. One that cannot be opened is told in the log and left out. */
    readonly files: (
      names: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<CertificateFile>, StoreUnavailable>
    /** For nodes of the edge: the answer to `/.well-known/acme-challenge/<token>` (RFC 8555, section 8.3). */
    readonly keyAuthorization: (
      challenge: ChallengeName
    ) => Effect.Effect<Option.Option<string>, StoreUnavailable>
  }
>()("svc/edge/Certificates") {
  static readonly layer = Layer.effect(
    Certificates,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const ring = yield* KeyRing
      // Anybody may ask for any number of them: one look at a time answers all that have come until then.
      const keyAuthorization = yield* batched(
        ({ host, token }: ChallengeName) => `${token} ${host}`,
        (names) =>
          Effect.map(
            repeatable(sql<{ readonly ord: number; readonly answer: string }>`
              select q.ord::int, c.key_authorization as answer
              from jsonb_array_elements(${sql.json(names)}) with ordinality as q(name, ord)
              join edge_challenge c on c.host = q.name->>'host' and c.token = q.name->>'token'
              where c.expires_at > now()`),
            (rows) => {
              const answers = new Map(rows.map(({ ord, answer }) => [ord, answer]))
              return names.map((_, i) => Option.fromUndefinedOr(answers.get(i + 1)))
            }
          ).pipe(answered("answer an authority", challengeMs))
      )

      return Certificates.of({
        want: ({ orgId, name }) =>
          Effect.asVoid(
            repeatable(sql`
              insert into edge_certificate (name, org_id) values (${name}, ${orgId}::uuid)
              on conflict (name) do update set org_id = excluded.org_id, error = null, error_type = null, attempt = 0,
                state = case when edge_certificate.chain is null then 'pending' else 'issued' end,
                due_at = case when edge_certificate.lease_token is null then now() else edge_certificate.due_at end
              where edge_certificate.org_id is distinct from excluded.org_id`)
          ),
        find: ({ orgId, name }) =>
          Effect.map(
            repeatable(sql<CertificateRow>`
              select ${sql.literal(certificateColumns)} from edge_certificate
              where name = ${name} and org_id is not distinct from ${orgId}::uuid`),
            ([row]) => Option.map(Option.fromUndefinedOr(row), certificateOf)
          ),
        hurry: ({ orgId, name }) =>
          Effect.asVoid(
            repeatable(sql`
              with rested as (
                select name, greatest(now(), retry_after, case when attempt > 1
                  then tried_at + least(interval '1 hour', interval '1 minute' * 2 ^ least(attempt - 2, 10)) end) as at
                from edge_certificate where name = ${name}
              )
              update edge_certificate c set state = case when chain is null then 'pending' else 'issued' end, due_at = r.at
              from rested r where c.name = r.name and c.name = ${name} and org_id is not distinct from ${orgId}::uuid and lease_token is null
                and (chain is null or error is not null) and (due_at is null or due_at > r.at)`)
          ),
        drop: ({ orgId, name }) =>
          Effect.asVoid(
            repeatable(sql`
              delete from edge_certificate
              where name = ${name} and org_id is not distinct from ${orgId}::uuid`)
          ),
        served: Effect.map(
          repeatable(sql<{ readonly name: string; readonly fingerprint: string }>`
            select name, fingerprint from edge_certificate where fingerprint is not null`),
          (rows) => new Map(rows.map(({ name, fingerprint }) => [name, fingerprint]))
        ),
        files: Effect.fn("Certificates.files")(function* (names) {
          const files: Array<CertificateFile> = []
          for (let from = 0; from < names.length; from += batch) {
            const rows = yield* repeatable(sql<FileRow>`
              select name, fingerprint, chain, key_id, sealed
              from edge_certificate join jsonb_array_elements_text(${sql.json(names.slice(from, from + batch))}) as wanted
                on wanted = name
              where sealed is not null`)
            for (const row of rows) {
              const key = yield* Effect.result(
                ring.open(certificatePlace(row.name), { keyId: row.key_id, bytes: row.sealed })
              )
              if (key._tag === "Failure") {
                yield* Effect.logError(`the certificate of ${row.name} cannot be served`, key.failure)
                continue
              }
              const text = `${row.chain}\n${Redacted.value(key.success)}`.trim()
              files.push({
                name: row.name,
                fingerprint: row.fingerprint,
                pem: Redacted.make(`${text.replaceAll(/\s*\n\s*/g, "\n")}\n`)
              })
            }
          }
          return files
        }),
        keyAuthorization
      })
    })
  )
}

export interface CertificateRow {
  readonly orgId: string | null
  readonly name: string
  readonly state: Certificate["state"]
  readonly issuer: Issuer | null
  readonly fingerprint: string | null
  readonly expiresAt: Date | null
  readonly renewAt: Date | null
  readonly error: string | null
  readonly errorType: string | null
  readonly nextLookAt: Date | null
}

interface FileRow {
  readonly name: string
  readonly fingerprint: string
  readonly chain: string
  readonly key_id: string
  readonly sealed: Uint8Array
}

export const certificateColumns = `org_id as "orgId", name, state, issuer, fingerprint, not_after as "expiresAt",
  renew_at as "renewAt", error, error_type as "errorType", due_at as "nextLookAt"`

export const certificateOf = ({ error, errorType, ...row }: CertificateRow): Certificate => ({
  orgId: row.orgId,
  name: row.name,
  state: row.state,
  issuer: row.issuer ?? undefined,
  fingerprint: row.fingerprint ?? undefined,
  expiresAt: row.expiresAt ?? undefined,
  renewAt: row.renewAt ?? undefined,
  error: error === null ? undefined : certificateErrorOf(error, errorType),
  nextLookAt: row.nextLookAt ?? undefined
})
