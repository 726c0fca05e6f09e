/** The endpoints of an organization's webhooks. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as SqlError from "effect/sql/SqlError"
import { liveOrganization } from "#src/organizations/deletion.ts"
import { signingSecretBytes, signingSecretOf } from "#src/outbound/signature.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql, violatedUnique } from "#src/store/Db.ts"
import { NameTaken, Refused } from "#src/store/errors.ts"
import { KeyRing, type Sealed } from "#src/store/KeyRing.ts"
import { type Reservation, randomBytesOf } from "#src/store/Reservation.ts"
import type { Actor } from "#src/store/records.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import type { EventType } from "./event-types.ts"
import { openSecrets, sealSecrets } from "./secrets.ts"

export interface Webhook {
  readonly id: string
  readonly url: string
  readonly events: ReadonlyArray<EventType>
  readonly createdAt: Date
  readonly failingSince: Date | null
  readonly disabledAt: Date | null
  readonly disabledReason: string | null
}

export interface WebhookChange {
  readonly url?: string | undefined
  readonly events?: ReadonlyArray<EventType> | undefined
  readonly enabled?: boolean | undefined
}

export interface Rotated {
  readonly secret: Redacted.Redacted
  readonly previousUntil: Date
}

/** Every event is stored for each of them. */
const most = 50

export class Webhooks extends Context.Service<
  Webhooks,
  {
    /** Oldest first. */
    readonly list: (orgId: string) => Effect.Effect<ReadonlyArray<Webhook>, StoreUnavailable>
    /** Answers the endpoint, and the secret that it has now, if it was made under this reservation before. */
    readonly create: (
      orgId: string,
      made: { readonly url: string; readonly events: ReadonlyArray<EventType> },
      actor: Actor,
      reservation: Reservation
    ) => Effect.Effect<
      { readonly webhook: Webhook; readonly secret: Redacted.Redacted },
      NameTaken | Refused | StoreUnavailable
    >
    /** None: there is no such endpoint. */
    readonly update: (
      orgId: string,
      id: string,
      change: WebhookChange,
      actor: Actor
    ) => Effect.Effect<Option.Option<Webhook>, NameTaken | StoreUnavailable>
    /** With everything that waits to be sent to it. */
    readonly remove: (orgId: string, id: string, actor: Actor) => Effect.Effect<boolean, StoreUnavailable>
    /** The secret that is replaced signs as well for so many seconds. */
    readonly rotate: (
      orgId: string,
      id: string,
      overlapSeconds: number,
      actor: Actor,
      reservation: Reservation
    ) => Effect.Effect<Option.Option<Rotated>, Refused | StoreUnavailable>
  }
>()("svc/webhooks/Webhooks") {
  static readonly layer = Layer.effect(
    Webhooks,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      const ring = yield* KeyRing

      /** An endpoint with its secret. */
      const known = Effect.fnUntraced(function* (orgId: string, id: string) {
        const [row] = yield* repeatable(sql<
          Webhook & { readonly key_id: string; readonly sealed: Uint8Array }
        >`
          select ${columns(sql)}, key_id, sealed from webhook
          where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}`)
        if (row === undefined) return undefined
        const { key_id: keyId, sealed: bytes, ...webhook } = row
        const [secret] = yield* opened(orgId, id, { keyId, bytes })
        return secret === undefined ? undefined : { webhook, secret }
      })
      const opened = (orgId: string, id: string, sealed: Sealed) =>
        Effect.mapError(
          openSecrets(ring, orgId, id, sealed),
          (error) => new StoreUnavailable({ message: error.message, cause: error })
        )

      return Webhooks.of({
        list: Effect.fn("Webhooks.list")(function* (orgId) {
          return yield* repeatable(sql<Webhook>`
            select ${columns(sql)} from webhook w
            where org_id = ${orgId}::uuid and ${inOrg(sql, orgId)} order by created_at, id`)
        }),
        create: Effect.fn("Webhooks.create")(function* (orgId, { url, events }, actor, reservation) {
          const [id, secret] = [reservation.uid, secretOf(reservation)]
          const { keyId, bytes } = sealSecrets(ring, orgId, id, [secret])
          const gate = inOrg(sql, orgId)
          const [webhook] = yield* sql<Webhook>`
            with here as materialized (${liveOrganization(sql, orgId)}),
            w as (
              insert into webhook (org_id, id, url, events, key_id, sealed)
              select ${orgId}::uuid, ${id}::uuid, ${url}::text, ${typesOf(sql, events)}, ${keyId}::text, ${bytes}::bytea
              from here
              where ${gate} and (select count(*) from webhook o where o.org_id = ${orgId}::uuid) < ${most}::int
              on conflict (org_id, id) do nothing
              returning *
            ), audited as (${auditOf(sql, orgId, actor, "w")})
            select ${columns(sql)} from w`.pipe(urlTaken(url), orUnavailable)
          const before = webhook === undefined && reservation.keyed ? yield* known(orgId, id) : undefined
          if (before !== undefined) return before
          if (webhook === undefined) {
            return yield* new Refused({
              code: "too_many_webhooks",
              message: `An organization has ${most} endpoints at most; delete one`
            })
          }
          return { webhook, secret }
        }),
        update: Effect.fn("Webhooks.update")(function* (orgId, id, { url, events, enabled }, actor) {
          const set = (column: string) => sql.literal(column)
          const disabled = enabled === undefined ? null : !enabled
          const [webhook] = yield* sql<Webhook>`
            with w as (
              update webhook set
                url = coalesce(${url ?? null}::text, url),
                events = ${events === undefined ? set("events") : typesOf(sql, events)},
                -- Another address is not judged by what the old one did.
                failing_since = case
                  when ${disabled}::boolean is false or url <> coalesce(${url ?? null}::text, url) then null
                  else failing_since end,
                disabled_at = case when ${disabled}::boolean is null then disabled_at
                  when ${disabled}::boolean then coalesce(disabled_at, now()) end,
                disabled_reason = case when ${disabled}::boolean is null then disabled_reason
                  when ${disabled}::boolean then coalesce(disabled_reason, 'Switched off by hand') end
              where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}
              returning *
            ), stopped as (
              update webhook_delivery set state = 'failed', settled_at = now(), lease_token = null
              where org_id = ${orgId}::uuid and state = 'waiting' and ${inOrg(sql, orgId)}
                and webhook_id in (select id from w where disabled_at is not null)
            ), audited as (${auditOf(sql, orgId, actor, "w")})
            select ${columns(sql)} from w`.pipe(urlTaken(url ?? ""), repeatable)
          return Option.fromUndefinedOr(webhook)
        }),
        remove: Effect.fn("Webhooks.remove")(function* (orgId, id, actor) {
          const rows = yield* repeatable(sql`
            with w as (
              delete from webhook where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}
              returning id
            ), audited as (${auditOf(sql, orgId, actor, "w")})
            select id from w`)
          return rows.length > 0
        }),
        rotate: Effect.fn("Webhooks.rotate")(function* (orgId, id, overlapSeconds, actor, reservation) {
          const [row] = yield* repeatable(sql<{
            readonly version: number
            readonly key_id: string
            readonly sealed: Uint8Array
            readonly previousUntil: Date | null
          }>`
            select secret_version as version, key_id, sealed, previous_until as "previousUntil" from webhook
            where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}`)
          if (row === undefined) return Option.none()
          const [current] = yield* opened(orgId, id, { keyId: row.key_id, bytes: row.sealed })
          const secret = secretOf(reservation)
          const { previousUntil } = row
          // Once more, and it would take the place of the one that it replaced.
          if (
            current !== undefined &&
            Redacted.value(current) === Redacted.value(secret) &&
            previousUntil !== null
          )
            return Option.some({ secret, previousUntil })
          const kept = current === undefined || overlapSeconds === 0 ? [] : [current]
          const { keyId, bytes } = sealSecrets(ring, orgId, id, [secret, ...kept])
          const [rotated] = yield* orUnavailable(sql<{ readonly previousUntil: Date }>`
            with w as (
              update webhook set key_id = ${keyId}::text, sealed = ${bytes}::bytea,
                secret_version = secret_version + 1,
                previous_until = now() + make_interval(secs => ${overlapSeconds}::float8)
              where org_id = ${orgId}::uuid and id = ${id}::uuid and secret_version = ${row.version}::int
                and ${inOrg(sql, orgId)}
              returning id, previous_until
            ), audited as (${auditOf(sql, orgId, actor, "w")})
            select previous_until as "previousUntil" from w`)
          if (rotated === undefined) {
            return yield* new Refused({
              code: "secret_changed",
              message:
                "The secret was replaced, or its endpoint deleted, at the same moment; look before you repeat it"
            })
          }
          return Option.some({ secret, previousUntil: rotated.previousUntil })
        })
      })
    })
  )
}

const secretOf = (reservation: Reservation) =>
  signingSecretOf(randomBytesOf(reservation, "signing secret", signingSecretBytes))

const columns = (sql: Sql) =>
  sql.literal(`id, url, events, created_at as "createdAt", failing_since as "failingSince",
    disabled_at as "disabledAt", disabled_reason as "disabledReason"`)

const typesOf = (sql: Sql, events: ReadonlyArray<EventType>) =>
  sql`string_to_array(${events.join()}::text, ',')`

const urlTaken =
  (url: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.mapError(self, (error) =>
      SqlError.isSqlError(error) && violatedUnique(error) === "webhook_org_id_url_key"
        ? new NameTaken({ message: `${url} receives this organization's events already` })
        : error
    )
