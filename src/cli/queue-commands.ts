/** `svc queues`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, at, confirmName, online, type Place, place, readStdin, waiting, yes } from "./flags.ts"
import { jsonOf } from "./json-text.ts"
import { facts, json, out, paint, say, table } from "./output.ts"
import { deleted } from "./service.ts"
import { waitForOne } from "./wait.ts"

const queueName = Argument.String("name").pipe(Argument.withDescription("Name or id of the queue"))
const find = Effect.fnUntraced(function* (flags: Place & { readonly name: string }) {
  const { asMember, org } = yield* Client
  const queues = yield* call(asMember.queues.list(at(org, flags)))
  const found =
    queues.find(({ id }) => id === flags.name) ??
    // What is being deleted gives way to what took its name.
    queues.filter(({ name }) => name === flags.name).sort((a, b) => b.createdAt.localeCompare(a.createdAt))[0]
  return (
    found ??
    (yield* failure(
      `There is no queue "${flags.name}" in ${flags.project}/${flags.environment}`,
      exitCodes.notFound
    ))
  )
})
const one = (org: string, flags: Place, id: string) => ({
  params: { orgId: org, projectId: flags.project, queueId: id },
  headers: {}
})

const seconds = (name: string, what: string) => Flag.Int(name).pipe(Flag.withDescription(what), Flag.optional)
const settings = {
  path: Flag.String("path").pipe(Flag.withDescription("Where the app takes batches"), Flag.optional),
  batch: seconds("batch-size", "Messages in a batch at most"),
  wait: seconds("batch-wait", "Seconds that a batch which is not full waits"),
  retries: seconds("retries", "Tries after the first one"),
  delay: seconds("retry-delay", "Seconds between tries"),
  concurrency: seconds("concurrency", "Batches under way at once"),
  dead: Flag.String("dead-letter-queue").pipe(
    Flag.withDescription("Queue for what is given up; it is kept where it is otherwise"),
    Flag.optional
  ),
  retention: seconds("retention", "Seconds that a message is kept"),
  delivery: seconds("delivery-delay", "Seconds that a message waits at first")
}
type Asked = { readonly [K in keyof typeof settings]: Option.Option<string | number> }
type Consumer = NonNullable<Effect.Success<ReturnType<typeof find>>["consumer"]>

const number = (value: Option.Option<string | number>) => Number(Option.getOrElse(value, () => 0))
/** What flags say of the consumer, on top of what there is. */
const consumerOf = (flags: Asked, current: Consumer | null) => ({
  ...(current ?? {}),
  ...(Option.isSome(flags.batch) ? { maxBatchSize: number(flags.batch) } : {}),
  ...(Option.isSome(flags.wait) ? { maxBatchWaitSeconds: number(flags.wait) } : {}),
  ...(Option.isSome(flags.retries) ? { maxRetries: number(flags.retries) } : {}),
  ...(Option.isSome(flags.delay) ? { retryDelaySeconds: number(flags.delay) } : {}),
  ...(Option.isSome(flags.concurrency) ? { maxConcurrency: number(flags.concurrency) } : {}),
  path: String(Option.getOrElse(flags.path, () => current?.path ?? ""))
})
const asked = (flags: Asked, current: Consumer | null) => {
  const consumer = [flags.path, flags.batch, flags.wait, flags.retries, flags.delay, flags.concurrency]
  return {
    ...(consumer.some(Option.isSome) ? { consumer: withDefaults(consumerOf(flags, current)) } : {}),
    ...(Option.isSome(flags.dead) ? { deadLetterQueue: String(flags.dead.value) } : {}),
    ...(Option.isSome(flags.retention) ? { retentionSeconds: number(flags.retention) } : {}),
    ...(Option.isSome(flags.delivery) ? { deliveryDelaySeconds: number(flags.delivery) } : {})
  }
}
const withDefaults = (consumer: Partial<Consumer> & { readonly path: string }): Consumer => ({
  maxBatchSize: 10,
  maxBatchWaitSeconds: 0,
  maxRetries: 3,
  retryDelaySeconds: 30,
  maxConcurrency: null,
  ...consumer
})
const consumerNeedsPath = failure("A consumer needs --path: where the app takes batches", exitCodes.usage)

const ls = Command.make("ls", { ...place, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const queues = yield* call(asMember.queues.list(at(org, flags)))
      if (flags.json) return yield* json(queues)
      if (queues.length === 0)
        return yield* say(`There are no queues in ${flags.project}/${flags.environment}`)
      yield* out(
        table(
          ["NAME", "STATUS", "CONSUMER", "DEAD LETTERS"],
          queues.map(({ name, status, paused, consumer, deadLetterQueue }) => [
            name,
            paused ? "paused" : status,
            consumer?.path ?? "",
            deadLetterQueue ?? ""
          ])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List queues"))

const get = Command.make("get", { ...place, json: asJson, name: queueName }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const queue = yield* find(flags)
      const stats = yield* call(asMember.queues.stats(one(org, flags, queue.id)))
      if (flags.json) return yield* json({ ...queue, stats })
      const { consumer } = queue
      yield* out(
        facts([
          ["Name", queue.name],
          ["Id", queue.id],
          ["Environment", queue.environment],
          ["Status", queue.paused ? `${queue.status}, paused` : queue.status],
          ["Consumer", consumer === null ? "none" : consumer.path],
          ...(consumer === null
            ? []
            : [
                [
                  "Batches",
                  `${consumer.maxBatchSize} messages, waiting ${consumer.maxBatchWaitSeconds} s`
                ] as const,
                ["Retries", `${consumer.maxRetries}, ${consumer.retryDelaySeconds} s apart`] as const
              ]),
          ["Dead letters", queue.deadLetterQueue ?? "kept here"],
          ["Retention", `${queue.retentionSeconds} s`],
          ["Backlog", `${stats.backlog} (${stats.inFlight} being delivered, ${stats.delayed} delayed)`],
          ["Given up", `${stats.failed} here, ${stats.inDeadLetterQueue} in the dead letter queue`],
          ["Oldest", `${stats.oldestMessageAgeSeconds} s`]
        ])
      )
    })
  )
).pipe(Command.withDescription("Show a queue and what is in it"))

const create = Command.make("create", { ...place, json: asJson, name: queueName, ...settings }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const payload = { name: flags.name, ...asked(flags, null) }
      if (payload.consumer?.path === "") return yield* consumerNeedsPath
      const made = yield* call(asMember.queues.create({ ...at(org, flags), headers: {}, payload }))
      if (flags.json) return yield* json(made)
      yield* say(`${made.name} ${paint("green", `is ${made.status}`)}`)
    })
  )
).pipe(
  Command.withDescription("Create a queue"),
  Command.withExamples([
    {
      command: "svc queues create shop jobs --path /jobs --dead-letter-queue dead",
      description: "Batches go to /jobs of the app"
    }
  ])
)

/** Changes a queue and waits until the change is in force. */
const change = Effect.fnUntraced(function* (
  flags: Place & { readonly name: string; readonly json: boolean; readonly timeout: number },
  payload: (queue: Effect.Success<ReturnType<typeof find>>) => ReturnType<typeof asked> & { paused?: boolean }
) {
  const { asMember, org } = yield* Client
  const queue = yield* find(flags)
  const wanted = payload(queue)
  if (Object.keys(wanted).length === 0) return yield* failure("Say what to change", exitCodes.usage)
  if (wanted.consumer?.path === "") return yield* consumerNeedsPath
  yield* call(asMember.queues.update({ ...one(org, flags, queue.id), payload: wanted }))
  yield* waitForOne(queue.id, { ...flags, wait: true })
  if (flags.json) return yield* json(yield* find({ ...flags, name: queue.id }))
  yield* say(`${queue.name} ${paint("green", "is changed")}`)
})

const { timeout } = waiting
const named = { ...place, timeout, json: asJson, name: queueName }
const update = Command.make("update", { ...named, ...settings }, (flags) =>
  online(
    flags,
    change(flags, ({ consumer }) => asked(flags, consumer))
  )
).pipe(Command.withDescription("Change a queue"))
const pause = Command.make("pause", named, (flags) =>
  online(
    flags,
    change(flags, () => ({ paused: true }))
  )
).pipe(Command.withDescription("Keep messages and deliver none"))
const resume = Command.make("resume", named, (flags) =>
  online(
    flags,
    change(flags, () => ({ paused: false }))
  )
).pipe(Command.withDescription("Deliver again"))

const publish = Command.make(
  "publish",
  {
    ...place,
    json: asJson,
    name: queueName,
    body: Argument.String("body").pipe(
      Argument.withDescription("The message as JSON; standard input when it is left out"),
      Argument.optional
    ),
    delay: seconds("delay", "Seconds until it may be delivered"),
    key: Flag.String("idempotency-key").pipe(
      Flag.withDescription("Of messages with one key in 24 hours the first counts"),
      Flag.optional
    )
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { id } = yield* find(flags)
        const text = Option.isSome(flags.body) ? flags.body.value : yield* readStdin
        const body = yield* jsonOf("The message", text)
        const message = {
          body,
          ...(Option.isSome(flags.delay) ? { delaySeconds: flags.delay.value } : {}),
          ...(Option.isSome(flags.key) ? { idempotencyKey: flags.key.value } : {})
        }
        const { messages } = yield* call(
          asMember.queues.publish({ ...one(org, flags, id), payload: { messages: [message] } })
        )
        if (flags.json) return yield* json(messages)
        yield* out(messages.map((published) => published.id).join("\n"))
      })
    )
).pipe(Command.withDescription("Publish a message; prints its id"))

const stats = Command.make("stats", { ...place, json: asJson, name: queueName }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { id } = yield* find(flags)
      const found = yield* call(asMember.queues.stats(one(org, flags, id)))
      if (flags.json) return yield* json(found)
      yield* out(facts(Object.entries(found).map(([name, value]) => [name, String(value ?? "none")])))
    })
  )
).pipe(Command.withDescription("Count the messages"))

const redrive = Command.make(
  "redrive",
  { ...place, json: asJson, name: queueName, limit: seconds("limit", "Messages at most (default 1000)") },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { id } = yield* find(flags)
        const payload = Option.isSome(flags.limit) ? { limit: flags.limit.value } : {}
        const { redriven } = yield* call(asMember.queues.redrive({ ...one(org, flags, id), payload }))
        if (flags.json) return yield* json({ redriven })
        yield* say(`${redriven} messages get another chance`)
      })
    )
).pipe(Command.withDescription("Give what was given up another chance"))

const purge = Command.make("purge", { ...place, json: asJson, name: queueName, yes }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { id, name } = yield* find(flags)
      yield* confirmName(`This throws away all messages of "${name}".`, name, flags.yes)
      const { purged } = yield* call(asMember.queues.purge(one(org, flags, id)))
      if (flags.json) return yield* json({ purged })
      yield* say(`${purged} messages are gone`)
    })
  )
).pipe(Command.withDescription("Throw all messages away"))

const rm = Command.make("delete", { ...place, ...waiting, json: asJson, name: queueName, yes }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner, org } = yield* Client
      const { id, name } = yield* find(flags)
      yield* confirmName(`This deletes the queue "${name}" and its messages.`, name, flags.yes)
      yield* call(asOwner.queues.delete(one(org, flags, id)))
      yield* deleted(id, `${flags.project}/${flags.environment}/Queue/${name}`, flags)
    })
  )
).pipe(Command.withAlias("rm"), Command.withDescription("Delete a queue and its messages"))

export const queues = Command.make("queues").pipe(
  Command.withDescription("Durable queues whose messages are posted to the app"),
  Command.withSubcommands([ls, get, create, update, publish, stats, redrive, purge, pause, resume, rm])
)
