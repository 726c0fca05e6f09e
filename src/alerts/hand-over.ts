/**
 * Hands mails that alerts promised to the outbox. The promise of an event is held until its mails are in there, or are known
 * to have no recipient, so each is sent once, whoever is killed. Recipients are looked up now: who is no member any more
 * gets nothing, and who is meant by several destinations gets one. (Accounts exist only with an address that was proved.)
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AppConfig } from "#src/config.ts"
import { whenAnnounced } from "#src/loops/when-announced.ts"
import { insertMail, Mail } from "#src/mail/Mail.ts"
import * as messages from "#src/mail/messages.ts"
import { Db, orUnavailable, transaction } from "#src/store/Db.ts"
import { conditionText } from "./text.ts"

const batch = 20
/** Recipients of one event. */
const mostRecipients = 50
/**
 * Mails about alerts to members of one organization in an hour. What is beyond is withheld, for the sake of the mail server's
 * reputation. Processes that hand over at the same time may each add a batch to it.
 */
export const mostHourly = 200
/** Nobody needs to hear of it a day later. */
const usefulSeconds = 86_400

interface Promised {
  readonly orgId: string
  readonly eventId: string
  readonly type: "alert.firing" | "alert.resolved"
  readonly project: string
  readonly data: Parameters<typeof conditionText>[0] & {
    readonly name: string
    readonly severity: string
    readonly reason: string | null
  }
  readonly destinations: ReadonlyArray<string | null>
  readonly recipients: ReadonlyArray<{ readonly email: string; readonly administrates: boolean }>
  /** Mails of the organization in the last hour. */
  readonly recent: number
}

/** One batch; answers how many promises there were. */
export const handOver = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const mail = yield* Mail
  const { publicUrl } = yield* AppConfig
  const handing = Effect.gen(function* () {
    // Indexes: alert_mail_waiting, alert_mail_recent.
    const promised = yield* sql<Promised>`
      select m.org_id as "orgId", m.event_id as "eventId", m.type, m.data, m.destinations, coalesce(p.name, '') as project,
        (select coalesce(jsonb_agg(x), '[]') from (
          select a.email, o.role in ('owner', 'admin') as administrates
          from member o join account a on a.id = o.user_id
          where o.org_id = m.org_id and (array_position(m.destinations, null) is not null and o.role in ('owner', 'admin')
            or lower(a.email) = any (select lower(d) from unnest(m.destinations) d))
          order by a.email limit ${mostRecipients}::int) x) as recipients,
        (select coalesce(sum(s.sent), 0)::int from alert_mail s
          where s.org_id = m.org_id and s.handed_at > now() - interval '1 hour') as recent
      from alert_mail m left join resource p on p.org_id = m.org_id and p.uid = m.project_id
      where m.handed_at is null order by m.created_at, m.event_id limit ${batch}::int for update of m skip locked`
    const sent = new Map<string, number>()
    for (const { orgId, eventId, type, project, data, destinations, recipients, recent } of promised) {
      const message = messages.alert({
        fires: type === "alert.firing",
        name: data.name,
        severity: data.severity,
        project,
        condition: conditionText(data),
        reason: data.reason,
        publicUrl
      })
      const before = sent.get(orgId) ?? recent
      const withheld = before + recipients.length > mostHourly
      const letters = withheld
        ? []
        : recipients.map(({ email: to, administrates }) => ({
            administrates,
            row: mail.prepare({ ...message, to, orgId, usefulSeconds })
          }))
      sent.set(orgId, before + letters.length)
      const mails = destinations.map((destination) =>
        letters.flatMap(({ administrates, row: { id, recipient } }) =>
          (destination === null ? administrates : recipient.toLowerCase() === destination.toLowerCase())
            ? [id]
            : []
        )
      )
      const inserts = letters.map(
        ({ row }, i) => sql`, ${sql.literal(`mail_${i}`)} as (${insertMail(sql, row)})`
      )
      yield* sql`
        with handed as (
          update alert_mail set handed_at = now(), sent = ${letters.length}::int,
            mails = ${withheld ? null : sql.json(mails)}::jsonb
          where org_id = ${orgId}::uuid and event_id = ${eventId}::uuid
        )
        ${sql.join("", false)(inserts)}
        select 1`
    }
    return promised.length
  })
  return yield* orUnavailable(transaction(sql, handing))
})

export const layer = Layer.effectDiscard(
  whenAnnounced(
    { does: "hand over mails of alerts", channel: "svc_alert_mail", rest: () => "30 seconds" },
    Effect.repeat(handOver, { while: (handed) => handed >= batch })
  )
)
