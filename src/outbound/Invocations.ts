/**
 * What a call from the platform to a user's app needs: where the app of an environment answers, and the secrets that
 * the call is signed with. An environment's first secret is made when it is first needed.
 */
import * as Cache from "effect/Cache"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { isTrusted, Preview } from "#schemas/preview.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { AppOrigins } from "./AppOrigins.ts"
import { makeSigningSecrets, previousSigningField, signingField } from "./signing-secrets.ts"

export interface InvocationTarget {
  /** Undefined: nobody has said where the app answers, or the environment is gone. */
  readonly origin: string | undefined
  /** It is the preview of a fork at a commit that nobody approved: nothing is sent there. */
  readonly isWithheld: boolean
  /** It is an instance of an app that this platform runs, and no address that somebody named. */
  readonly isOwn: boolean
  /** The current one, and for a day after it was replaced the one before it. */
  readonly secrets: ReadonlyArray<Redacted.Redacted>
}

const decodePreview = Schema.decodeUnknownOption(Preview.spec)

interface Row {
  readonly origin: string | null
  readonly preview: unknown
  readonly field: string | null
  readonly key_id: string
  readonly sealed: Uint8Array
}

export class Invocations extends Context.Service<
  Invocations,
  {
    /** As the store has it now. */
    readonly target: (
      orgId: string,
      environmentUid: string
    ) => Effect.Effect<InvocationTarget, StoreUnavailable>
    /** At most a second old: for many calls of one moment. */
    readonly recentTarget: (
      orgId: string,
      environmentUid: string
    ) => Effect.Effect<InvocationTarget, StoreUnavailable>
    /** The same, for who calls it now: also an app of ours, which is woken if it sleeps. */
    readonly callable: (
      orgId: string,
      environmentUid: string
    ) => Effect.Effect<InvocationTarget, StoreUnavailable>
  }
>()("svc/outbound/Invocations") {
  static readonly layer = Layer.effect(
    Invocations,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const signing = yield* makeSigningSecrets
      const apps = yield* AppOrigins

      const read = (orgId: string, uid: string) =>
        repeatable(sql<Row>`
          select r.spec->>'origin' as origin, p.spec as preview, s.field, s.key_id, s.sealed
          from resource r
          left join resource p on p.org_id = r.org_id and p.uid = r.parent_uid and p.kind = ${Preview.name}
          left join secret s on s.org_id = ${orgId}::uuid and s.uid = r.uid and (s.field = ${signingField}
            or s.field = ${previousSigningField} and s.updated_at > now() - interval '24 hours')
          where r.org_id = ${orgId}::uuid and r.uid = ${uid}::uuid and r.kind = 'Environment' and r.deleted_at is null
          order by s.field desc`)

      const target = Effect.fn("Invocations.target")(function* (orgId: string, uid: string) {
        let rows = yield* read(orgId, uid)
        if (rows.length > 0 && !rows.some(({ field }) => field === signingField)) {
          yield* signing.make(orgId, uid)
          rows = yield* read(orgId, uid)
        }
        const secrets = yield* Effect.forEach(
          rows.flatMap((row) => (row.field === null ? [] : [{ ...row, field: row.field }])),
          (row) => signing.open({ orgId, uid, field: row.field }, row)
        )
        const { origin, preview = null } = rows[0] ?? {}
        const isWithheld = preview !== null && !Option.exists(decodePreview(preview), isTrusted)
        const named: InvocationTarget = { origin: origin ?? undefined, isWithheld, isOwn: false, secrets }
        return named
      })

      const briefly = <A>(lookup: (orgId: string, uid: string) => Effect.Effect<A, StoreUnavailable>) =>
        Cache.make({
          capacity: 10_000,
          timeToLive: "1 second",
          lookup: (key: string) => {
            const [orgId = "", uid = ""] = key.split(" ")
            return lookup(orgId, uid)
          }
        })
      const recent = yield* briefly(target)
      const recentCallable = yield* briefly(
        Effect.fnUntraced(function* (orgId: string, uid: string) {
          const named = yield* target(orgId, uid)
          if (named.isWithheld) return { ...named, origin: undefined }
          // What somebody named comes before an app of ours.
          if (named.origin !== undefined) return named
          const origin = yield* apps.find(orgId, uid)
          return origin === undefined ? named : { ...named, origin, isOwn: true }
        })
      )

      return Invocations.of({
        target,
        recentTarget: (orgId, uid) => Cache.get(recent, `${orgId} ${uid}`),
        callable: (orgId, uid) => Cache.get(recentCallable, `${orgId} ${uid}`)
      })
    })
  )
}
