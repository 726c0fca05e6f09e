/** Connections to accounts at Stripe: what is stored of one, whether it can be used, and its end. */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import {
  CustomerPayments,
  CustomerPaymentsSpec,
  CustomerPaymentsStatus,
  customerPaymentsName,
  paymentCredentialField
} from "#schemas/customer-payments.ts"
import { fromStored } from "#schemas/stored-spec.ts"
import { AppConfig } from "#src/config.ts"
import { Db, inOrg, orUnavailable, repeatable, transaction } from "#src/store/Db.ts"
import type { NameTaken, NotFound, Refused, RevisionConflict } from "#src/store/errors.ts"
import { KeyRing, type KeyRingError, type Sealed } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor } from "#src/store/records.ts"
import { secretPlace } from "#src/store/Secrets.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import {
  inForce,
  openWebhookSecrets,
  rotated,
  sealWebhookSecrets,
  type WebhookSecrets
} from "./webhook-secrets.ts"

type Refusal = NonNullable<CustomerPaymentsStatus["refusal"]> | "unchecked"

export interface Connection {
  readonly orgId: string
  readonly uid: string
  readonly projectId: string
  readonly environment: string
  readonly spec: CustomerPaymentsSpec
  readonly generation: number
  readonly secretKey: Redacted.Redacted
  /** Why it cannot be used; undefined: it can. */
  readonly refusal: Refusal | undefined
  readonly createdAt: Date
  readonly updatedAt: Date
}

export interface Ref {
  readonly orgId: string
  readonly uid: string
}

/** What the reconciler keeps of a connection. */
export interface Kept {
  readonly secrets: WebhookSecrets
  /** Fingerprint of the owner's secret that is in force. */
  readonly webhookSecret: string
  readonly endpointId: string | null
  readonly refusedKey: string | null
  /** Its events wait for a key that works. */
  readonly parked: boolean
  /** Fingerprint of a key that was not let make an endpoint, within the last day: a key may be given the right. */
  readonly endpointRefusedKey: string | null
}

interface Row {
  readonly uid: string
  readonly project_id: string
  readonly environment: string
  readonly spec: Schema.Json
  readonly status: unknown
  readonly generation: number
  readonly created_at: Date
  readonly updated_at: Date
  readonly refused_key: string | null
  readonly key_id: string | null
  readonly sealed: Uint8Array | null
}

const decodeSpec = Schema.decodeUnknownEffect(CustomerPaymentsSpec)
const decodeStatus = Schema.decodeUnknownOption(CustomerPaymentsStatus)
const kind = CustomerPayments.name
const secretKeyField = paymentCredentialField("secretKey")
const webhookSecretField = paymentCredentialField("webhookSecret")

const unreadable = (error: KeyRingError) => new StoreUnavailable({ message: error.message, cause: error })

export class Connections extends Context.Service<
  Connections,
  {
    /** None: the environment has none. */
    readonly find: (
      orgId: string,
      projectId: string,
      environment: string
    ) => Effect.Effect<Option.Option<Connection>, StoreUnavailable>
    /** None: it was disconnected. */
    readonly get: (ref: Ref) => Effect.Effect<Option.Option<Connection>, StoreUnavailable>
    /** The address that Stripe sends events to. */
    readonly webhookUrl: (uid: string) => string
    /** Whose webhooks come to this id, and the secrets that hold. None: there is no such connection. */
    readonly webhookSecrets: (uid: string) => Effect.Effect<
      Option.Option<{
        readonly orgId: string
        readonly live: boolean
        readonly secrets: ReadonlyArray<Redacted.Redacted>
      }>,
      StoreUnavailable
    >
    /** Stripe refused this key while it was used: no request is made with it until it is seen to work again. */
    readonly refuse: (connection: Connection) => Effect.Effect<void, StoreUnavailable>
    readonly kept: (ref: Ref) => Effect.Effect<Option.Option<Kept>, StoreUnavailable>
    /** Keeps the owner's webhook secret in force, and the one before it for a day. False: a later reconcile did. */
    readonly keepSecret: (
      ref: Ref & { readonly fence: bigint },
      given: { readonly secret: string; readonly fingerprint: string }
    ) => Effect.Effect<boolean, StoreUnavailable>
    /** Which endpoint the platform has at Stripe. False: a later reconcile did. */
    readonly keepEndpoint: (
      ref: Ref & { readonly fence: bigint },
      endpoint: { readonly id: string; readonly secret: string } | null
    ) => Effect.Effect<boolean, StoreUnavailable>
    /** Keeps that this key may not make or change the endpoint. */
    readonly refuseEndpoint: (
      ref: Ref & { readonly fence: bigint },
      key: string
    ) => Effect.Effect<void, StoreUnavailable>
    /** The platform's endpoint at Stripe, to be taken away there. */
    readonly endpointOf: (ref: Ref) => Effect.Effect<string | undefined, StoreUnavailable>
    /** Whether anything is stored of it. */
    readonly remains: (ref: Ref) => Effect.Effect<boolean, StoreUnavailable>
    /** Whether no reconcile with a higher number has changed it. */
    readonly isLatest: (ref: Ref & { readonly fence: bigint }) => Effect.Effect<boolean, StoreUnavailable>
    /** Removes everything that is stored of it, and its credentials, at once. */
    readonly forget: (ref: Ref) => Effect.Effect<void, StoreUnavailable>
    /** The same, and asks for the deletion of the resource in the same transaction. */
    readonly disconnect: (
      ref: Ref,
      actor: Actor
    ) => Effect.Effect<void, NameTaken | NotFound | RevisionConflict | Refused | StoreUnavailable>
  }
>()("svc/payments/Connections") {
  static readonly layer = Layer.effect(
    Connections,
    Effect.gen(function* () {
      // Credentials are the engine's to read; every statement carries the organization.
      const { engine: sql, api } = yield* Db
      const ring = yield* KeyRing
      const resources = yield* Resources
      const { publicUrl } = yield* AppConfig

      const columns =
        sql.literal(`r.uid, r.project_id, r.environment, r.spec, r.status, r.generation, r.created_at,
        r.updated_at, c.refused_key, s.key_id, s.sealed`)
      const source = sql`resource r
        left join payment_connection c on c.org_id = r.org_id and c.uid = r.uid
        left join secret s on s.org_id = r.org_id and s.uid = r.uid and s.field = ${secretKeyField}`

      const toConnection = Effect.fnUntraced(function* (orgId: string, row: Row) {
        if (row.key_id === null || row.sealed === null) return Option.none<Connection>()
        const spec = yield* Effect.orDie(decodeSpec(fromStored(kind, row.spec)))
        const place = secretPlace({ orgId, uid: row.uid, field: secretKeyField })
        const opened = ring.open(place, { keyId: row.key_id, bytes: row.sealed })
        const connection: Connection = {
          orgId,
          uid: row.uid,
          projectId: row.project_id,
          environment: row.environment,
          spec,
          generation: row.generation,
          secretKey: yield* Effect.mapError(opened, unreadable),
          refusal: refusalOf(spec, row),
          createdAt: row.created_at,
          updatedAt: row.updated_at
        }
        return Option.some(connection)
      })
      const first = (orgId: string, rows: ReadonlyArray<Row>) => {
        const [row] = rows
        return row === undefined ? Effect.succeedNone : toConnection(orgId, row)
      }

      const removed = (run: typeof sql, { orgId, uid }: Ref) => run`
        with gone as (
          delete from payment_object where org_id = ${orgId}::uuid and connection_uid = ${uid}::uuid and ${inOrg(run, orgId)}
        ), intents as (
          delete from payment_intent where org_id = ${orgId}::uuid and connection_uid = ${uid}::uuid and ${inOrg(run, orgId)}
        ), events as (
          delete from payment_event where org_id = ${orgId}::uuid and connection_uid = ${uid}::uuid and ${inOrg(run, orgId)}
        ), connections as (
          delete from payment_connection where org_id = ${orgId}::uuid and uid = ${uid}::uuid and ${inOrg(run, orgId)}
        )
        delete from secret where org_id = ${orgId}::uuid and uid = ${uid}::uuid
          and starts_with(field, ${paymentCredentialField("")}) and ${inOrg(run, orgId)}`

      const sealedOf = ({ orgId, uid }: Ref, secrets: WebhookSecrets): Sealed =>
        sealWebhookSecrets(ring, orgId, uid, secrets)
      const read = Effect.fnUntraced(function* ({ orgId, uid }: Ref) {
        const [row] = yield* repeatable(sql<{
          readonly key_id: string
          readonly sealed: Uint8Array
          readonly webhookSecret: string
          readonly endpointId: string | null
          readonly refusedKey: string | null
          readonly parked: boolean
          readonly endpointRefusedKey: string | null
        }>`
          select key_id, sealed, webhook_secret as "webhookSecret", endpoint_id as "endpointId",
            refused_key as "refusedKey", coalesce(parked_until > now(), false) as parked,
            case when endpoint_refused_at > now() - interval '1 day' then endpoint_refused_key end as "endpointRefusedKey"
          from payment_connection where org_id = ${orgId}::uuid and uid = ${uid}::uuid`)
        if (row === undefined) return Option.none<Kept>()
        const { key_id: keyId, sealed, ...rest } = row
        const opened = openWebhookSecrets(ring, orgId, uid, { keyId, bytes: sealed })
        const kept: Kept = { ...rest, secrets: yield* Effect.mapError(opened, unreadable) }
        return Option.some(kept)
      })

      return Connections.of({
        // Index: resource_by_place.
        find: Effect.fn("payments.Connections.find")(function* (orgId, projectId, environment) {
          const rows = yield* repeatable(sql<Row>`
            select ${columns} from ${source}
            where r.org_id = ${orgId}::uuid and r.kind = ${kind} and r.project_id = ${projectId}::uuid
              and r.environment = ${environment} and r.name = ${customerPaymentsName}
              and r.deletion_requested_at is null and r.deleted_at is null`)
          return yield* first(orgId, rows)
        }),
        get: Effect.fn("payments.Connections.get")(function* ({ orgId, uid }) {
          const rows = yield* repeatable(sql<Row>`
            select ${columns} from ${source}
            where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.kind = ${kind}
              and r.deletion_requested_at is null and r.deleted_at is null`)
          return yield* first(orgId, rows)
        }),
        webhookUrl: (uid) => `${publicUrl}/v1/payments/webhooks/${uid}`,
        webhookSecrets: Effect.fn("payments.Connections.webhookSecrets")(function* (uid) {
          interface Secrets {
            readonly org_id: string
            readonly key_id: string
            readonly sealed: Uint8Array
            readonly given_key_id: string | null
            readonly given: Uint8Array | null
            readonly spec_key_id: string
            readonly spec_key: Uint8Array
          }
          // The one look across organizations: who sends a webhook knows the connection's id and no more.
          // Index: payment_connection_uid.
          const [row] = yield* repeatable(sql<Secrets>`
            select r.org_id, c.key_id, c.sealed, w.key_id as given_key_id, w.sealed as given,
              s.key_id as spec_key_id, s.sealed as spec_key
            from payment_connection c
            join resource r on r.org_id = c.org_id and r.uid = c.uid
            join secret s on s.org_id = c.org_id and s.uid = c.uid and s.field = ${secretKeyField}
            left join secret w on w.org_id = c.org_id and w.uid = c.uid and w.field = ${webhookSecretField}
            where c.uid = ${uid}::uuid and r.kind = ${kind}
              and r.deletion_requested_at is null and r.deleted_at is null`)
          if (row === undefined) return Option.none()
          const { org_id: orgId } = row
          const open = (field: string, keyId: string, bytes: Uint8Array) =>
            Effect.mapError(ring.open(secretPlace({ orgId, uid, field }), { keyId, bytes }), unreadable)
          const key = yield* open(secretKeyField, row.spec_key_id, row.spec_key)
          const given =
            row.given_key_id === null || row.given === null
              ? undefined
              : yield* open(webhookSecretField, row.given_key_id, row.given)
          const kept = yield* Effect.mapError(
            openWebhookSecrets(ring, orgId, uid, { keyId: row.key_id, bytes: row.sealed }),
            unreadable
          )
          const nowMs = yield* Clock.currentTimeMillis
          return Option.some({
            orgId,
            live: isLive(key),
            secrets: inForce(kept, given === undefined ? undefined : Redacted.value(given), nowMs)
          })
        }),
        refuse: Effect.fn("payments.Connections.refuse")(function* ({ orgId, uid, spec }) {
          yield* repeatable(sql`
            update payment_connection set refused_key = ${spec.credentials.secretKey}
            where org_id = ${orgId}::uuid and uid = ${uid}::uuid
              and refused_key is distinct from ${spec.credentials.secretKey}`)
        }),
        kept: read,
        keepSecret: Effect.fn("payments.Connections.keepSecret")(function* (ref, { secret, fingerprint }) {
          const before = Option.getOrUndefined(yield* read(ref))
          const secrets = rotated(before?.secrets, secret, yield* Clock.currentTimeMillis)
          const { keyId, bytes } = sealedOf(ref, secrets)
          const rows = yield* repeatable(sql`
            with kept as (
              insert into payment_connection as c (org_id, uid, key_id, sealed, webhook_secret, fence)
              values (${ref.orgId}::uuid, ${ref.uid}::uuid, ${keyId}, ${bytes}, ${fingerprint}, ${ref.fence})
              on conflict (org_id, uid) do update set key_id = excluded.key_id, sealed = excluded.sealed,
                webhook_secret = excluded.webhook_secret, fence = excluded.fence, refused_key = null, parked_until = null
                where c.fence <= excluded.fence
              returning uid
            )
            -- What there is at Stripe already is compared with, and the events that waited are worked on.
            select uid, pg_notify('svc_payment_comparisons', ''), pg_notify('svc_payments', '') from kept`)
          return rows.length > 0
        }),
        keepEndpoint: Effect.fn("payments.Connections.keepEndpoint")(function* (ref, endpoint) {
          const before = yield* read(ref)
          if (Option.isNone(before)) return false
          const { endpoint: _, ...others } = before.value.secrets
          const secrets = endpoint === null ? others : { ...others, endpoint: endpoint.secret }
          const { keyId, bytes } = sealedOf(ref, secrets)
          const rows = yield* repeatable(sql`
            update payment_connection set endpoint_id = ${endpoint?.id ?? null}::text, key_id = ${keyId},
              sealed = ${bytes}, fence = ${ref.fence}
            where org_id = ${ref.orgId}::uuid and uid = ${ref.uid}::uuid and fence <= ${ref.fence}
            returning uid`)
          return rows.length > 0
        }),
        refuseEndpoint: ({ orgId, uid, fence }, key) =>
          Effect.asVoid(
            repeatable(sql`
              update payment_connection set endpoint_refused_key = ${key}, endpoint_refused_at = now()
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence <= ${fence}`)
          ),
        endpointOf: Effect.fn("payments.Connections.endpointOf")(function* ({ orgId, uid }) {
          const [row] = yield* repeatable(sql<{ readonly endpoint_id: string | null }>`
            select endpoint_id from payment_connection where org_id = ${orgId}::uuid and uid = ${uid}::uuid`)
          return row?.endpoint_id ?? undefined
        }),
        remains: Effect.fn("payments.Connections.remains")(function* ({ orgId, uid }) {
          const of = (table: string, column: string) =>
            sql`exists (select from ${sql(table)} where org_id = ${orgId}::uuid and ${sql(column)} = ${uid}::uuid)`
          const [row] = yield* repeatable(sql<{ readonly any: boolean }>`
            select ${of("payment_connection", "uid")} or ${of("payment_object", "connection_uid")}
              or ${of("payment_event", "connection_uid")} or ${of("payment_intent", "connection_uid")}
              or exists (select from secret where org_id = ${orgId}::uuid and uid = ${uid}::uuid
                and starts_with(field, ${paymentCredentialField("")})) as any`)
          return row?.any === true
        }),
        isLatest: ({ orgId, uid, fence }) =>
          Effect.map(
            repeatable(sql`
              select from payment_connection
              where org_id = ${orgId}::uuid and uid = ${uid}::uuid and fence > ${fence}`),
            (later) => later.length === 0
          ),
        forget: (ref) => Effect.asVoid(repeatable(removed(sql, ref))),
        disconnect: Effect.fn("payments.Connections.disconnect")(function* (ref, actor) {
          // The resource first: whoever stores something of the connection holds its row while it does.
          const all = Effect.andThen(
            resources.write(ref.orgId, [{ action: "delete", uid: ref.uid }], actor),
            removed(api, ref)
          )
          yield* orUnavailable(transaction(api, all))
        })
      })
    })
  )
}

export const isLive = (key: Redacted.Redacted): boolean => Redacted.value(key).startsWith("rk_live_")

const refusalOf = (spec: CustomerPaymentsSpec, row: Row): Refusal | undefined => {
  const key = spec.credentials.secretKey
  if (row.refused_key === key) return "revoked"
  const status = Option.getOrUndefined(decodeStatus(row.status))
  if (status?.key === key && status.refusal !== null) return status.refusal
  return status?.key === key || spec.checkedKey === key ? undefined : "unchecked"
}

/** For people, and what to do about it. */
export const refusalText: Readonly<Record<Refusal, string>> = {
  revoked: "Stripe does not accept the key any more: connect with a new restricted key",
  too_wide:
    "The key reaches the account's balance: connect with one that is restricted to what the scopes name",
  right_missing:
    "The key lacks a right that a scope needs: give it the right at Stripe, or connect with another",
  other_account: "The key is of another account than what is stored here: disconnect before connecting it",
  unchecked: "The key has not been tried yet; try again in a moment"
}
