/**
 * Hands mails that alerts promised to the outbox. A promise is held until it is a mail in there, or is known to have no
 * recipient, so each becomes one, whoever is killed. Recipients are looked up now: who is no member any more gets
 * nothing. (Accounts exist only with an address that was proved.)
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AppConfig } from "#src/config.ts"
import { periodic } from "#src/loops/periodic.ts"
import { insertMail, Mail } from "#src/mail/Mail.ts"
import * as messages from "#src/mail/messages.ts"
import { Db, orUnavailable, transaction } from "#src/store/Db.ts"
import { conditionText } from "./text.ts"

const batch = 20
/** Recipients of one promise. */
const mostRecipients = 50
/** Nobody needs to hear of it a day later. */
const usefulSeconds = 86_400

interface Promised {
  readonly orgId: string
  readonly id: string
  readonly type: "alert.firing" | "alert.resolved"
  readonly project: string
  readonly data: Parameters<typeof conditionText>[0] & {
    readonly name: string
    readonly severity: string
    readonly reason: string | null
  }
  readonly recipients: ReadonlyArray<string>
}

/** One batch; answers how many promises there were. */
export const handOver = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const mail = yield* Mail
  const { publicUrl } = yield* AppConfig
  const handing = Effect.gen(function* () {
    // Index: alert_mail_waiting.
    const promised = yield* sql<Promised>`
      select m.org_id as "orgId", m.id, m.type, m.data, coalesce(p.name, '') as project,
        array(select a.email from member o join account a on a.id = o.user_id
          where o.org_id = m.org_id and case when m.destination is null then o.role in ('owner', 'admin')
            else lower(a.email) = lower(m.destination) end
          order by a.email limit ${mostRecipients}::int) as recipients
      from alert_mail m left join resource p on p.org_id = m.org_id and p.uid = m.project_id
      where m.handed_at is null order by m.created_at limit ${batch}::int for update of m skip locked`
    for (const { orgId, id, type, project, data, recipients } of promised) {
      const message = messages.alert({
        fires: type === "alert.firing",
        name: data.name,
        severity: data.severity,
        project,
        condition: conditionText(data),
        reason: data.reason,
        publicUrl
      })
      const letters = recipients.map((to) => mail.prepare({ ...message, to, orgId, usefulSeconds }))
      const inserts = letters.map(
        (letter, i) => sql`, ${sql.literal(`mail_${i}`)} as (${insertMail(sql, letter)})`
      )
      yield* sql`
        with handed as (
          update alert_mail set handed_at = now(), mail_ids = ${letters.map((letter) => letter.id)}::uuid[]
          where org_id = ${orgId}::uuid and id = ${id}::uuid
        )
        ${sql.join("", false)(inserts)}
        select 1`
    }
    return promised.length
  })
  return yield* orUnavailable(transaction(sql, handing))
})

export const layer = Layer.effectDiscard(
  periodic(
    { does: "hand over mails of alerts", every: "4 seconds" },
    Effect.repeat(handOver, { while: (handed) => handed >= batch })
  )
)
