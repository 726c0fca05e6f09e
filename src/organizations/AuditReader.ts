/** Reading the audit log of an organization. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface AuditRecord {
  readonly id: string
  readonly at: Date
  readonly principal: string
  readonly credential: string
  readonly operation: string
  readonly resource: string | null
  readonly requestId: string
  readonly address: string | null
  readonly outcome: number
}

export interface AuditFilter {
  readonly principal?: string | undefined
  readonly operation?: string | undefined
  readonly resource?: string | undefined
}

export class AuditReader extends Context.Service<
  AuditReader,
  {
    /** Newest first, at most `limit`, older than record `before`. */
    readonly list: (
      orgId: string,
      filter: AuditFilter,
      limit: number,
      before?: string
    ) => Effect.Effect<ReadonlyArray<AuditRecord>, StoreUnavailable>
  }
>()("svc/organizations/AuditReader") {
  static readonly layer = Layer.effect(
    AuditReader,
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      return AuditReader.of({
        // Index: audit_log_org.
        list: Effect.fn("AuditLog.list")(function* (orgId, filter, limit, before) {
          const { principal = null, operation = null, resource = null } = filter
          return yield* repeatable(sql<AuditRecord>`
            select id::text as id, at, principal, credential, operation, resource, request_id as "requestId", address,
              outcome
            from audit_log
            where org_id = ${orgId}::uuid and ${inOrg(sql, orgId)}
              and (${before ?? null}::bigint is null or audit_log.id < ${before ?? null}::bigint)
              and (${principal}::text is null or principal = ${principal}::text)
              and (${operation}::text is null or operation = ${operation}::text)
              and (${resource}::text is null or resource = ${resource}::text)
            order by audit_log.id desc limit ${limit}::int`)
        })
      })
    })
  )
}
