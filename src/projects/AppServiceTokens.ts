/**
 * Tokens that apps present to the platform's own services. An environment has one, made when it is first needed and given
 * to what runs there. A rotation leaves the one before it valid for a day, so that what runs can be restarted in between.
 */
import { randomBytes, randomUUIDv7 } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as SqlError from "effect/sql/SqlError"
import { digestOf } from "#src/access/Access.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, repeatable, violatedUnique } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { type Reservation, randomBytesOf } from "#src/store/Reservation.ts"
import type { Actor } from "#src/store/records.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"

export interface RotatedToken {
  readonly token: Redacted.Redacted
  /** Null: there was none before. */
  readonly previousValidUntil: Date | null
}

/** The words that a sealed token is bound to. */
export const tokenPlace = (orgId: string, id: string): ReadonlyArray<string> => [
  "app-service-token",
  orgId,
  id
]

/** Whose token it is. */
export interface TokenHolder {
  readonly tokenId: string
  readonly orgId: string
  readonly orgSlug: string
  readonly billingStatus: string
  readonly projectId: string
  readonly environment: string
}

const tokenForm = /^svcapp_[A-Za-z0-9]{40}$/
const tokenBytes = 20
const tokenOf = (bytes: Buffer) => Redacted.make(`svcapp_${bytes.toString("hex")}`)

export class AppServiceTokens extends Context.Service<
  AppServiceTokens,
  {
    /** The token for what runs in an environment, given by its name. None: the environment is gone. */
    readonly current: (
      orgId: string,
      projectId: string,
      environment: string
    ) => Effect.Effect<
      Option.Option<{ readonly environmentUid: string; readonly token: Redacted.Redacted }>,
      StoreUnavailable
    >
    /** None: it does not hold. Asked for every call, so that a token that was replaced opens nothing. */
    readonly holder: (token: Redacted.Redacted) => Effect.Effect<Option.Option<TokenHolder>, StoreUnavailable>
    /**
     * Answers the same token again if it was made under this reservation before. None: the environment is being deleted.
     * A token that an earlier rotation left valid is not any more.
     */
    readonly rotate: (
      orgId: string,
      environmentUid: string,
      actor: Actor,
      reservation: Reservation
    ) => Effect.Effect<Option.Option<RotatedToken>, StoreUnavailable>
  }
>()("svc/projects/AppServiceTokens") {
  static readonly layer = Layer.effect(
    AppServiceTokens,
    Effect.gen(function* () {
      const { api, engine } = yield* Db
      const ring = yield* KeyRing

      interface Row {
        readonly environmentUid: string
        readonly id: string | null
        readonly key_id: string
        readonly sealed: Uint8Array
      }
      // Indexes: resource_identity, app_service_token_current.
      const read = (orgId: string, projectId: string, environment: string) =>
        repeatable(engine<Row>`
          select e.uid as "environmentUid", t.id, t.key_id, t.sealed
          from resource e
          left join app_service_token t
            on t.org_id = e.org_id and t.environment_uid = e.uid and t.expires_at is null
          where e.org_id = ${orgId}::uuid and e.kind = 'Environment' and e.project_id = ${projectId}::uuid
            and e.environment is null and e.name = ${environment} and e.deletion_requested_at is null`)

      const make = (orgId: string, environmentUid: string) => {
        const [id, token] = [randomUUIDv7(), tokenOf(randomBytes(tokenBytes))]
        const { keyId, bytes } = ring.seal(tokenPlace(orgId, id), token)
        // Of several that make it at once, one is stored and all read that one.
        return repeatable(engine`
          insert into app_service_token (org_id, id, environment_uid, digest, key_id, sealed)
          values (${orgId}::uuid, ${id}::uuid, ${environmentUid}::uuid, ${digestOf(Redacted.value(token))}::bytea,
            ${keyId}, ${bytes})
          on conflict do nothing`)
      }

      return AppServiceTokens.of({
        current: Effect.fn("AppServiceTokens.current")(function* (orgId, projectId, environment) {
          let [row] = yield* read(orgId, projectId, environment)
          if (row?.id === null) {
            yield* make(orgId, row.environmentUid)
            ;[row] = yield* read(orgId, projectId, environment)
          }
          if (row === undefined || row.id === null) return Option.none()
          const opened = ring.open(tokenPlace(orgId, row.id), { keyId: row.key_id, bytes: row.sealed })
          const token = yield* Effect.mapError(
            opened,
            (error) => new StoreUnavailable({ message: error.message, cause: error })
          )
          return Option.some({ environmentUid: row.environmentUid, token })
        }),

        holder: Effect.fn("AppServiceTokens.holder")(function* (token) {
          const text = Redacted.value(token)
          if (!tokenForm.test(text)) return Option.none()
          const [row] = yield* repeatable(engine<TokenHolder>`
            select t.id as "tokenId", o.id as "orgId", o.slug as "orgSlug", o.billing_status as "billingStatus",
              e.project_id as "projectId", e.name as environment
            from app_service_token t
            join organization o on o.id = t.org_id
            join resource e on e.org_id = t.org_id and e.uid = t.environment_uid
              and e.deletion_requested_at is null and e.deleted_at is null
            where t.digest = ${digestOf(text)}::bytea and (t.expires_at is null or t.expires_at > now())`)
          return Option.fromUndefinedOr(row)
        }),

        rotate: Effect.fn("AppServiceTokens.rotate")(function* (orgId, environmentUid, actor, reservation) {
          const { uid: id } = reservation
          const token = tokenOf(randomBytesOf(reservation, "app-service token", tokenBytes))
          const { keyId, bytes } = ring.seal(tokenPlace(orgId, id), token)
          const gate = inOrg(api, orgId)
          const ofIt = api`t.org_id = ${orgId}::uuid and t.environment_uid = ${environmentUid}::uuid and ${gate}`
          interface Rotated {
            readonly until: Date | null
          }
          const replace = api<Rotated>`
            with place as materialized (
              select e.uid from resource e where e.org_id = ${orgId}::uuid and e.uid = ${environmentUid}::uuid
                and e.kind = 'Environment' and e.deletion_requested_at is null and ${gate}
                and not exists (select from app_service_token t where ${ofIt} and t.id = ${id}::uuid)
            ), gone as (
              delete from app_service_token t using place where ${ofIt} and t.expires_at is not null
            ), ending as (
              update app_service_token t set expires_at = now() + interval '24 hours' from place
              where ${ofIt} and t.expires_at is null
              returning t.expires_at
            ), made as (
              insert into app_service_token (org_id, id, environment_uid, digest, key_id, sealed)
              select ${orgId}::uuid, ${id}::uuid, p.uid, ${digestOf(Redacted.value(token))}::bytea, ${keyId}::text,
                ${bytes}::bytea
              from place p cross join (select count(*) from ending) e where ${gate}
              returning environment_uid as id
            ), audited as (${auditOf(api, orgId, actor, "made")})
            -- Whoever serves apps looks at running calls again.
            select (select expires_at from ending) as until, pg_notify('svc_change', ${orgId}::text) from made`
          const [made] = yield* repeatable(
            // Of rotations at the same moment each builds on the one before.
            Effect.retry(replace, {
              times: 10,
              while: (error) =>
                SqlError.isSqlError(error) && violatedUnique(error) === "app_service_token_current"
            })
          )
          if (made !== undefined) return Option.some({ token, previousValidUntil: made.until })
          const [before] = yield* repeatable(api<Rotated>`
            select (select max(t.expires_at) from app_service_token t where ${ofIt}) as until
            from app_service_token t where ${ofIt} and t.id = ${id}::uuid`)
          return before === undefined
            ? Option.none()
            : Option.some({ token, previousValidUntil: before.until })
        })
      })
    })
  )
}
