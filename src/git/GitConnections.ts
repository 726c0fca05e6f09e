/** Connections of organizations to the forges that their repositories are at. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as SqlError from "effect/sql/SqlError"
import { liveOrganization } from "#src/organizations/deletion.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, orUnavailable, repeatable, type Sql, violatedUnique } from "#src/store/Db.ts"
import { NameTaken, Refused, RevisionConflict } from "#src/store/errors.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { type Reservation, randomBytesOf } from "#src/store/Reservation.ts"
import type { Actor } from "#src/store/records.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import type { ConnectionKind } from "./connection-kinds.ts"
import { type ConnectionSecrets, openConnection, sealConnection } from "./connection-secrets.ts"

export interface GitConnection {
  readonly id: string
  readonly name: string
  readonly kind: ConnectionKind
  readonly url: string
  readonly owner: string
  readonly appId: string | null
  readonly installationId: string | null
  readonly account: string | null
  readonly checkedAt: Date | null
  readonly checkError: string | null
  readonly createdAt: Date
}

/** With what opens it. */
export interface OpenConnection extends GitConnection {
  readonly orgId: string
  readonly secrets: ConnectionSecrets
}

export interface NewConnection
  extends Pick<GitConnection, "name" | "kind" | "url" | "owner" | "appId" | "installationId"> {
  readonly token: Redacted.Redacted | undefined
  readonly privateKey: Redacted.Redacted | undefined
  /** Undefined: one is made. */
  readonly webhookSecret: Redacted.Redacted | undefined
}

/** What is left out stays. */
export interface ConnectionChange {
  readonly name?: string | undefined
  readonly owner?: string | undefined
  readonly installationId?: string | undefined
  readonly token?: Redacted.Redacted | undefined
  readonly privateKey?: Redacted.Redacted | undefined
  readonly webhookSecret?: Redacted.Redacted | undefined
}

const most = 50

export class GitConnections extends Context.Service<
  GitConnections,
  {
    /** By name. */
    readonly list: (orgId: string) => Effect.Effect<ReadonlyArray<GitConnection>, StoreUnavailable>
    readonly get: (orgId: string, id: string) => Effect.Effect<Option.Option<GitConnection>, StoreUnavailable>
    /** Answers the secret of its webhook beside it, the same in every try of a request. */
    readonly create: (
      orgId: string,
      made: NewConnection,
      actor: Actor,
      reservation: Reservation
    ) => Effect.Effect<
      { readonly connection: GitConnection; readonly webhookSecret: Redacted.Redacted },
      NameTaken | Refused | StoreUnavailable
    >
    readonly update: (
      orgId: string,
      id: string,
      change: ConnectionChange,
      actor: Actor
    ) => Effect.Effect<Option.Option<GitConnection>, NameTaken | Refused | StoreUnavailable>
    readonly remove: (orgId: string, id: string, actor: Actor) => Effect.Effect<boolean, StoreUnavailable>
    /** Keeps what the forge said when it was asked. */
    readonly checked: (
      orgId: string,
      id: string,
      said: { readonly account: string | null; readonly error: string | null }
    ) => Effect.Effect<Option.Option<GitConnection>, StoreUnavailable>
    /** The connection of this id, or the one that opens repositories of this owner. */
    readonly open: (
      orgId: string,
      which: { readonly id: string } | { readonly owner: string }
    ) => Effect.Effect<Option.Option<OpenConnection>, StoreUnavailable>
    /** Whosever it is: for what comes from a forge and names nobody. */
    readonly openAny: (id: string) => Effect.Effect<Option.Option<OpenConnection>, StoreUnavailable>
  }
>()("svc/git/GitConnections") {
  static readonly layer = Layer.effect(
    GitConnections,
    Effect.gen(function* () {
      const { api: sql, engine } = yield* Db
      const ring = yield* KeyRing

      const opened = Effect.fnUntraced(function* (rows: ReadonlyArray<SealedRow>) {
        const [row] = rows
        if (row === undefined) return Option.none<OpenConnection>()
        const { keyId, sealed, ...connection } = row
        const secrets = yield* Effect.mapError(
          openConnection(ring, row.orgId, row.id, { keyId, bytes: sealed }),
          (error) => new StoreUnavailable({ message: error.message, cause: error })
        )
        return Option.some({ ...connection, secrets })
      })
      const sealedColumns = (of: Sql) => of`${columns(of)}, org_id as "orgId", key_id as "keyId", sealed`

      /** Fails where the secrets were sealed anew meanwhile: one of them would be lost. */
      const changed = Effect.fnUntraced(function* (
        orgId: string,
        id: string,
        change: ConnectionChange,
        actor: Actor
      ) {
        const { name, owner, installationId, token, privateKey, webhookSecret } = change
        const before = yield* repeatable(sql<SealedRow>`
            select ${sealedColumns(sql)} from git_connection
            where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}`)
        const known = Option.getOrUndefined(yield* opened(before))
        if (known === undefined) return Option.none()
        const { keyId, bytes } = sealConnection(ring, orgId, id, {
          token: token ?? known.secrets.token,
          privateKey: privateKey ?? known.secrets.privateKey,
          webhookSecret: webhookSecret ?? known.secrets.webhookSecret
        })
        const credential = token !== undefined || privateKey !== undefined
        const [row] = yield* sql<GitConnection>`
            with c as (
              update git_connection set name = coalesce(${name ?? null}::text, name),
                owner = coalesce(${owner ?? null}::text, owner),
                installation_id = coalesce(${installationId ?? null}::text, installation_id),
                key_id = ${keyId}::text, sealed = ${bytes}::bytea,
                -- What the forge said was of the old credential.
                account = case when ${credential}::boolean then null else account end,
                checked_at = case when ${credential}::boolean then null else checked_at end,
                check_error = case when ${credential}::boolean then null else check_error end
              where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}
                and sealed = ${before[0]?.sealed}::bytea
              returning *
            ), audited as (${auditOf(sql, orgId, actor, "c")})
            select ${columns(sql)} from c`.pipe(
          taken({ name: name ?? known.name, owner: owner ?? known.owner }),
          orUnavailable
        )
        return row === undefined
          ? yield* new RevisionConflict({ message: "The connection was changed by somebody else meanwhile" })
          : Option.some(row)
      })

      return GitConnections.of({
        list: Effect.fn("GitConnections.list")(function* (orgId) {
          return yield* repeatable(sql<GitConnection>`
            select ${columns(sql)} from git_connection
            where org_id = ${orgId}::uuid and ${inOrg(sql, orgId)} order by name`)
        }),
        get: Effect.fn("GitConnections.get")(function* (orgId, id) {
          const [row] = yield* repeatable(sql<GitConnection>`
            select ${columns(sql)} from git_connection
            where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}`)
          return Option.fromUndefinedOr(row)
        }),
        create: Effect.fn("GitConnections.create")(function* (orgId, made, actor, reservation) {
          const { name, kind, url, owner, appId, installationId, token, privateKey } = made
          const id = reservation.uid
          const webhookSecret =
            made.webhookSecret ??
            Redacted.make(randomBytesOf(reservation, "git webhook secret", 32).toString("hex"))
          const { keyId, bytes } = sealConnection(ring, orgId, id, { token, privateKey, webhookSecret })
          const gate = inOrg(sql, orgId)
          const [connection] = yield* sql<GitConnection>`
            with here as materialized (${liveOrganization(sql, orgId)}),
            c as (
              insert into git_connection (org_id, id, name, kind, url, owner, app_id, installation_id, key_id, sealed)
              select ${orgId}::uuid, ${id}::uuid, ${name}::text, ${kind}::text, ${url}::text, ${owner}::text,
                ${appId}::text, ${installationId}::text, ${keyId}::text, ${bytes}::bytea
              from here
              where ${gate} and (select count(*) from git_connection o where o.org_id = ${orgId}::uuid) < ${most}::int
              on conflict (org_id, id) do nothing
              returning *
            ), audited as (${auditOf(sql, orgId, actor, "c")})
            select ${columns(sql)} from c`.pipe(taken(made), orUnavailable)
          if (connection !== undefined) return { connection, webhookSecret }
          const before = reservation.keyed
            ? yield* repeatable(sql<SealedRow>`
                select ${sealedColumns(sql)} from git_connection
                where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}`)
            : []
          const known = Option.getOrUndefined(yield* opened(before))
          if (known !== undefined) return { connection: known, webhookSecret: known.secrets.webhookSecret }
          return yield* new Refused({
            code: "too_many_git_connections",
            message: `An organization has ${most} connections at most; delete one`
          })
        }),
        update: Effect.fn("GitConnections.update")(function* (orgId, id, change, actor) {
          return yield* Effect.retry(changed(orgId, id, change, actor), {
            times: 10,
            schedule: Schedule.exponential("5 millis").pipe(Schedule.jittered),
            while: (error) => error._tag === "RevisionConflict"
          }).pipe(Effect.catchTag("RevisionConflict", ({ message }) => new StoreUnavailable({ message })))
        }),
        remove: Effect.fn("GitConnections.remove")(function* (orgId, id, actor) {
          const rows = yield* repeatable(sql`
            with c as (
              delete from git_connection where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}
              returning id
            ), audited as (${auditOf(sql, orgId, actor, "c")})
            select id from c`)
          return rows.length > 0
        }),
        checked: Effect.fn("GitConnections.checked")(function* (orgId, id, { account, error }) {
          const [row] = yield* repeatable(sql<GitConnection>`
            update git_connection set account = coalesce(${account}::text, account), check_error = ${error}::text,
              checked_at = now()
            where org_id = ${orgId}::uuid and id = ${id}::uuid and ${inOrg(sql, orgId)}
            returning ${columns(sql)}`)
          return Option.fromUndefinedOr(row)
        }),
        open: Effect.fn("GitConnections.open")(function* (orgId, which) {
          const of =
            "id" in which ? engine`id = ${which.id}::uuid` : engine`owner = lower(${which.owner}::text)`
          return yield* Effect.flatMap(
            repeatable(engine<SealedRow>`
              select ${sealedColumns(engine)} from git_connection where org_id = ${orgId}::uuid and ${of}`),
            opened
          )
        }),
        // Index: git_connection_id.
        openAny: Effect.fn("GitConnections.openAny")(function* (id) {
          return yield* Effect.flatMap(
            repeatable(engine<SealedRow>`
              select ${sealedColumns(engine)} from git_connection where id = ${id}::uuid`),
            opened
          )
        })
      })
    })
  )
}

interface SealedRow extends GitConnection {
  readonly orgId: string
  readonly keyId: string
  readonly sealed: Uint8Array
}

const columns = (sql: Sql) =>
  sql.literal(`id, name, kind, url, owner, app_id as "appId", installation_id as "installationId", account,
    checked_at as "checkedAt", check_error as "checkError", created_at as "createdAt"`)

const taken =
  ({ name, owner }: { readonly name: string; readonly owner: string }) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.mapError(self, (error) => {
      const violated = SqlError.isSqlError(error) ? violatedUnique(error) : undefined
      if (violated === "git_connection_org_id_name_key")
        return new NameTaken({ message: `There is a connection named ${name} already` })
      return violated === "git_connection_org_id_owner_key"
        ? new NameTaken({ message: `Another connection opens the repositories of ${owner} already` })
        : error
    })
