/**
 * Sealed values of resources and of the platform. A specification or a status holds a reference at most; the
 * value is here, encrypted under a key of the ring and bound to its organization, resource and field.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { Db, repeatable } from "./Db.ts"
import { KeyRing, type KeyRingError } from "./KeyRing.ts"

export interface SecretRef {
  readonly orgId: string
  readonly uid: string
  /** Which of the resource's secrets: `password`, `variable/KEY`, ... */
  readonly field: string
}

interface SealedRow {
  readonly field: string
  readonly key_id: string
  readonly sealed: Uint8Array
}

/** The words a resource's secret is bound to. */
export const secretPlace = (ref: SecretRef): ReadonlyArray<string> => [
  "secret",
  ref.orgId,
  ref.uid,
  ref.field
]

/** The words a secret of the platform is bound to. */
export const platformPlace = (name: string): ReadonlyArray<string> => ["platform", name]

const unreadable = (error: KeyRingError) => new StoreUnavailable({ message: error.message, cause: error })

export class Secrets extends Context.Service<
  Secrets,
  {
    readonly read: (ref: SecretRef) => Effect.Effect<Option.Option<Redacted.Redacted>, StoreUnavailable>
    /** Every secret of a resource whose field begins with `prefix`, by field. */
    readonly readAll: (
      ref: Omit<SecretRef, "field">,
      prefix: string
    ) => Effect.Effect<ReadonlyMap<string, Redacted.Redacted>, StoreUnavailable>
    readonly write: (ref: SecretRef, value: Redacted.Redacted) => Effect.Effect<void, StoreUnavailable>
    /**
     * Removes the secrets whose field begins with `prefix` and is not in `keep`; answers how many went. Does nothing
     * once the resource has another generation than the one `keep` was made from, and spares values written since.
     */
    readonly prune: (
      ref: Omit<SecretRef, "field"> & { readonly generation: number },
      prefix: string,
      keep: ReadonlyArray<string>
    ) => Effect.Effect<number, StoreUnavailable>
  }
>()("svc/store/Secrets") {
  static readonly layer = Layer.effect(
    Secrets,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const ring = yield* KeyRing
      const open = (ref: SecretRef, row: SealedRow) =>
        Effect.mapError(ring.open(secretPlace(ref), { keyId: row.key_id, bytes: row.sealed }), unreadable)

      return Secrets.of({
        read: Effect.fn("Secrets.read")(function* (ref) {
          const [row] = yield* repeatable(sql<SealedRow>`
            select field, key_id, sealed from secret
            where org_id = ${ref.orgId} and uid = ${ref.uid} and field = ${ref.field}`)
          return row === undefined ? Option.none() : Option.some(yield* open(ref, row))
        }),
        readAll: Effect.fn("Secrets.readAll")(function* (ref, prefix) {
          const rows = yield* repeatable(sql<SealedRow>`
            select field, key_id, sealed from secret
            where org_id = ${ref.orgId} and uid = ${ref.uid} and starts_with(field, ${prefix}) order by field`)
          return new Map(
            yield* Effect.forEach(rows, (row) =>
              Effect.map(open({ ...ref, field: row.field }, row), (value): [string, Redacted.Redacted] => [
                row.field,
                value
              ])
            )
          )
        }),
        write: Effect.fn("Secrets.write")(function* (ref, value) {
          const { keyId, bytes } = ring.seal(secretPlace(ref), value)
          yield* repeatable(sql`
            insert into secret (org_id, uid, field, key_id, sealed)
            values (${ref.orgId}, ${ref.uid}, ${ref.field}, ${keyId}, ${bytes})
            on conflict (org_id, uid, field)
            do update set key_id = excluded.key_id, sealed = excluded.sealed, updated_at = now()`)
        }),
        prune: Effect.fn("Secrets.prune")(function* (ref, prefix, keep) {
          const rows = yield* repeatable(sql`
            delete from secret
            where org_id = ${ref.orgId} and uid = ${ref.uid} and starts_with(field, ${prefix})
              and updated_at <= (select r.updated_at from resource r
                where r.org_id = ${ref.orgId} and r.uid = ${ref.uid} and r.generation = ${ref.generation}::int)
              and not exists (select from jsonb_array_elements_text(${sql.json(keep)}) as kept where kept = field)
            returning field`)
          return rows.length
        })
      })
    })
  )
}

/** Sealed values of the platform itself, which belong to no organization. */
export class PlatformSecrets extends Context.Service<
  PlatformSecrets,
  {
    /**
     * Reads the value, making it first when there is none. When several processes make it at once, one of the
     * values is stored and all of them get that one.
     */
    readonly ensure: <E, R>(
      name: string,
      make: Effect.Effect<Redacted.Redacted, E, R>
    ) => Effect.Effect<Redacted.Redacted, E | StoreUnavailable, R>
  }
>()("svc/store/PlatformSecrets") {
  static readonly layer = Layer.effect(
    PlatformSecrets,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const ring = yield* KeyRing
      const find = Effect.fnUntraced(function* (name: string) {
        const [row] = yield* repeatable(sql<SealedRow>`
          select name as field, key_id, sealed from platform_secret where name = ${name}`)
        if (row === undefined) return Option.none<Redacted.Redacted>()
        const opened = ring.open(platformPlace(name), { keyId: row.key_id, bytes: row.sealed })
        return Option.some(yield* Effect.mapError(opened, unreadable))
      })
      return PlatformSecrets.of({
        ensure: (name, make) =>
          Effect.gen(function* () {
            const existing = yield* find(name)
            if (Option.isSome(existing)) return existing.value
            const { keyId, bytes } = ring.seal(platformPlace(name), yield* make)
            yield* repeatable(sql`
              insert into platform_secret (name, key_id, sealed) values (${name}, ${keyId}, ${bytes})
              on conflict (name) do nothing`)
            const stored = yield* find(name)
            if (Option.isSome(stored)) return stored.value
            return yield* new StoreUnavailable({
              message: `The platform secret "${name}" was removed while it was made`
            })
          })
      })
    })
  )
}
