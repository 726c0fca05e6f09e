import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type Outcome, outboxLoop } from "#src/mail/deliver.ts"
import { insertMail, Mail } from "#src/mail/Mail.ts"
import { type Claimed, Outbox } from "#src/mail/Outbox.ts"
import { Transport } from "#src/mail/Transport.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { rowsOf } from "#test/loops/rows.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { testDb } from "#test/setup/database.ts"

const fixture = Layer.mergeAll(
  Outbox.layer,
  Mail.layer,
  Layer.succeed(Transport, { send: () => Effect.void })
).pipe(Layer.provideMerge(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))

leasedLoopSuite(
  "of mail",
  fixture,
  Effect.gen(function* () {
    const db = yield* Db
    const mail = yield* Mail
    const sql = db.engine
    const table: Table<Claimed, Outcome> = {
      ...rowsOf(db, { table: "mail_outbox", done: sql`state = 'sent'` }),
      port: yield* outboxLoop,
      add: (orgId, dueIn = 0) => {
        const row = mail.prepare({
          template: "test",
          subject: "A test",
          text: "It is one.",
          to: "ann@example.com",
          orgId,
          usefulSeconds: 3600
        })
        return sql`with mail as (${insertMail(sql, row)} returning id) select 1 from mail`.pipe(
          Effect.andThen(
            sql`update mail_outbox set due_at = now() + ${dueIn}::float8 * interval '1 millisecond'
              where id = ${row.id}::uuid and ${dueIn}::float8 > 0`
          ),
          sql.withTransaction,
          Effect.as(row.id),
          Effect.orDie
        )
      },
      succeeded: () => ({ _tag: "Sent" })
    }
    return table
  })
)
