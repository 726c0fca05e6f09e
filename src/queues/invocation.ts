/**
 * What an app is sent, and how its answer is read.
 *
 * The request is one JSON object with the messages of a batch. An answer of 2xx without a body, or with one that is
 * not JSON, acknowledges all of them. A JSON answer says it for each message, and what it does not name is delivered
 * again: nothing is lost because an answer forgot it. Any other status means that the whole batch failed.
 */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { OutboundAnswer } from "#src/outbound/Outbound.ts"
import { storableText } from "#src/storable.ts"
import type { Batch, Outcome } from "./QueueDeliveries.ts"

/** Bodies are JSON already: they are put in as they are. */
export const envelope = (batch: Batch): string => {
  const head = {
    id: invocationId(batch),
    type: "queue.batch",
    organizationId: batch.orgId,
    queueId: batch.uid
  }
  const messages = batch.messages.map(
    ({ id, attempt, publishedAt, body }) =>
      `{"id":"${id}","attempt":${attempt},"publishedAt":"${publishedAt.toISOString()}","body":${body}}`
  )
  return `${JSON.stringify(head).slice(0, -1)},"messages":[${messages.join(",")}]}`
}

export const invocationId = ({ uid, token }: Batch): string => `batch_${uid}_${token}`

const Answer = Schema.Struct({
  messages: Schema.Array(
    Schema.Struct({
      id: Schema.String,
      outcome: Schema.Literals(["ack", "retry", "reject"]),
      delaySeconds: Schema.optional(Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 86_400 }))),
      reason: Schema.optional(Schema.String)
    })
  )
})
const decodeAnswer = Schema.decodeUnknownOption(Schema.fromJsonString(Answer))

/** As much as is kept of what an app says. */
const short = (text: string) => storableText(text, 500)

const all = (batch: Batch, why: string, delaySeconds?: number): ReadonlyArray<Outcome> =>
  batch.messages.map(({ id }) => ({
    id,
    outcome: "retry",
    why: short(why),
    ...(delaySeconds === undefined ? {} : { delaySeconds })
  }))

/** No answer came, or the address may not be reached. */
export const unanswered = all

export const read = (
  batch: Batch,
  answer: Pick<OutboundAnswer, "status" | "headers" | "body">
): ReadonlyArray<Outcome> => {
  if (answer.status < 200 || answer.status > 299) {
    // Somebody who is busy may say for how long (RFC 9110, section 10.2.3).
    const after = Number(answer.headers["retry-after"] ?? Number.NaN)
    const busy = answer.status === 429 || answer.status === 503
    const delay = busy && Number.isInteger(after) && after >= 0 ? Math.min(after, 86_400) : undefined
    return all(batch, `The app answered ${answer.status}`, delay)
  }
  const isJson = /^application\/(.+\+)?json\b/i.test(answer.headers["content-type"] ?? "")
  if (!isJson || answer.body.trim() === "") return batch.messages.map(({ id }) => ({ id, outcome: "ack" }))
  const decoded = decodeAnswer(answer.body)
  if (Option.isNone(decoded)) {
    return all(batch, 'The app\'s JSON answer is not {"messages":[{"id","outcome"}]}')
  }
  const said = new Map(decoded.value.messages.map((one) => [one.id, one]))
  return batch.messages.map(({ id }): Outcome => {
    const one = said.get(id)
    if (one === undefined) return { id, outcome: "retry", why: "The app's answer does not name it" }
    if (one.outcome === "ack") return { id, outcome: "ack" }
    const why = short(one.reason ?? `The app answered ${one.outcome}`)
    if (one.outcome === "reject") return { id, outcome: "reject", why }
    return {
      id,
      outcome: "retry",
      why,
      ...(one.delaySeconds === undefined ? {} : { delaySeconds: Math.round(one.delaySeconds) })
    }
  })
}
