/** All certificates of the edge, for whoever operates the platform. */
import * as Effect from "effect/Effect"
import { Db, repeatable } from "#src/store/Db.ts"
import { type CertificateRow, certificateColumns, certificateOf } from "./Certificates.ts"

/** The next to expire first; those that there are none of before all. */
export const listCertificates = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const rows = yield* repeatable(sql<CertificateRow>`
    select ${sql.literal(certificateColumns)} from edge_certificate order by not_after nulls first, name`)
  return rows.map(certificateOf)
})

/**
 * Another certificate is got now, or as soon as its issuer allows, though the one that there is would last. Those that
 * are being seen to at the moment are left out. Answers the names.
 */
export const renewCertificates = Effect.fnUntraced(function* (names: ReadonlyArray<string>) {
  const { engine: sql } = yield* Db
  const rows = yield* repeatable(sql<{ readonly name: string }>`
    update edge_certificate set renew_at = now(), due_at = greatest(now(), retry_after),
      state = case when chain is null then 'pending' else 'issued' end
    from jsonb_array_elements_text(${sql.json(names)}) as wanted
    where name = wanted and lease_token is null
    returning name`)
  return rows.map(({ name }) => name)
})
