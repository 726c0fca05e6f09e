import { randomUUID } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "#src/config.ts"
import { Issuers } from "#src/edge/certificates/issue.ts"
import type { CertificateJob, Outcome } from "#src/edge/certificates/jobs.ts"
import { certificatesLoop } from "#src/edge/certificates/loop.ts"
import { Db } from "#src/store/Db.ts"
import { rowsOf } from "#test/loops/rows.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { store } from "./world.ts"

leasedLoopSuite(
  "of certificates",
  Issuers.layer.pipe(Layer.provideMerge(AppConfig.layerWith({})), Layer.provideMerge(store)),
  Effect.gen(function* () {
    const db = yield* Db
    const sql = db.engine
    const table: Table<CertificateJob, Outcome> = {
      ...rowsOf(db, {
        table: "edge_certificate",
        done: sql`state = 'issued'`,
        is: (name) => sql`name = ${name}`
      }),
      port: yield* certificatesLoop,
      add: (orgId, dueIn = 0) => {
        const name = `${randomUUID()}.example.com`
        return sql`
          insert into edge_certificate (name, org_id, due_at)
          values (${name}, ${orgId}::uuid, now() + ${dueIn}::float8 * interval '1 millisecond')`.pipe(
          Effect.as(name),
          Effect.orDie
        )
      },
      succeeded: () => ({
        _tag: "Issued",
        certificate: {
          issuer: "internal",
          chain: "a chain",
          privateKeyPem: Redacted.make("a key"),
          fingerprint: "00",
          notBefore: new Date(),
          notAfter: new Date(Date.now() + 90 * 86_400_000),
          renewAt: new Date(Date.now() + 60 * 86_400_000)
        },
        again: undefined
      })
    }
    return table
  })
)
