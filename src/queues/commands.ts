/** `svc queues`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { QueueConsumer } from "#schemas/queue.ts"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, readStdin, waiting, yes } from "#src/cli/flags.ts"
import { jsonOf } from "#src/cli/json-text.ts"
import { facts, json, out, paint, say } from "#src/cli/output.ts"
import { inEnvironment, resourceCommands } from "#src/cli/resource-commands.ts"
import { type Given, given } from "#src/cli/settings-flags.ts"
import { waitForOne } from "#src/cli/wait.ts"

const name = Argument.String("name").pipe(Argument.withDescription("Name or id of the queue"))
const { command, find, on, ls, update, remove } = resourceCommands({
  scope: inEnvironment,
  noun: "queue",
  plural: "queues",
  argument: name,
  list: ({ asMember }, at) => asMember.queues.list(at),
  nameOf: (queue) => queue.name,
  one: ({ params }, { id }) => ({ params: { ...params, queueId: id }, headers: {} })
})

const integer = (name: string, what: string) => Flag.Int(name).pipe(Flag.withDescription(what), Flag.optional)
const consumer = {
  path: Flag.String("path").pipe(Flag.withDescription("Where the app takes batches"), Flag.optional),
  maxBatchSize: integer("batch-size", "Messages in a batch at most"),
  maxBatchWaitSeconds: integer("batch-wait", "Seconds that a batch which is not full waits"),
  maxRetries: integer("retries", "Tries after the first one"),
  retryDelaySeconds: integer("retry-delay", "Seconds between tries"),
  maxConcurrency: integer("concurrency", "Batches under way at once")
}
const settings = {
  consumer,
  deadLetterQueue: Flag.String("dead-letter-queue").pipe(
    Flag.withDescription("Queue for what is given up; it is kept where it is otherwise"),
    Flag.optional
  ),
  retentionSeconds: integer("retention", "Seconds that a message is kept"),
  deliveryDelaySeconds: integer("delivery-delay", "Seconds that a message waits at first")
}

/** The settings with the consumer as a whole: what there is of it, what flags say, and defaults for the rest. */
const wanted = Effect.fnUntraced(function* (
  { consumer, ...others }: Given<Command.Command.Config.Infer<typeof settings>>,
  current: QueueConsumer | null
) {
  if (consumer === undefined) return others
  const path = consumer.path ?? current?.path ?? ""
  if (path === "")
    return yield* failure("A consumer needs --path: where the app takes batches", exitCodes.usage)
  const whole = Schema.decodeUnknownEffect(QueueConsumer)({ ...current, ...consumer, path })
  return {
    ...others,
    consumer: yield* Effect.mapError(whole, ({ message }) =>
      failure(`Not valid: ${message}`, exitCodes.usage)
    )
  }
})

const list = ls({
  columns: {
    NAME: (queue) => queue.name,
    STATUS: ({ status, paused }) => (paused ? "paused" : status),
    CONSUMER: (queue) => queue.consumer?.path ?? "",
    "DEAD LETTERS": ({ deadLetterQueue }) => deadLetterQueue ?? ""
  }
})

const get = on("get", {}, ({ item: queue, one }, { client, json: asJson }) =>
  Effect.gen(function* () {
    const stats = yield* call(client.asMember.queues.stats(one))
    if (asJson) return yield* json({ ...queue, stats })
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
).pipe(Command.withDescription("Show a queue and what is in it"))

const create = command("create", { name, settings }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const payload = { name: flags.name, ...(yield* wanted(given(flags.settings), null)) }
    const made = yield* call(client.asMember.queues.create({ ...(yield* at), headers: {}, payload }))
    if (asJson) return yield* json(made)
    yield* say(`${made.name} ${paint("green", `is ${made.status}`)}`)
  })
).pipe(
  Command.withDescription("Create a queue"),
  Command.withExamples([
    {
      command: "svc queues create shop jobs --path /jobs --dead-letter-queue dead",
      description: "Batches go to /jobs of the app"
    }
  ])
)

const change = update({
  settings,
  waits: true,
  payload: (settings, { consumer }) => wanted(settings, consumer),
  send: ({ asMember }, request) => asMember.queues.update(request),
  changed: ({ body }) => body
})

const deliver = <const Name extends string>(word: Name, paused: boolean) =>
  on(word, { timeout: waiting.timeout }, ({ item, name, one }, { client, json: asJson, ...request }) =>
    Effect.gen(function* () {
      yield* call(client.asMember.queues.update({ ...one, payload: { paused } }))
      yield* waitForOne(item.id, { ...request.flags, wait: true })
      if (asJson) return yield* json((yield* find(item.id, request)).item)
      yield* say(`${name} ${paint("green", "is changed")}`)
    })
  )
const pause = deliver("pause", true).pipe(Command.withDescription("Keep messages and deliver none"))
const resume = deliver("resume", false).pipe(Command.withDescription("Deliver again"))

const publish = on(
  "publish",
  {
    body: Argument.String("body").pipe(
      Argument.withDescription("The message as JSON; standard input when it is left out"),
      Argument.optional
    ),
    options: {
      delaySeconds: integer("delay", "Seconds until it may be delivered"),
      idempotencyKey: Flag.String("idempotency-key").pipe(
        Flag.withDescription("Of messages with one key in 24 hours the first counts"),
        Flag.optional
      )
    }
  },
  ({ one }, { client, json: asJson, flags }) =>
    Effect.gen(function* () {
      const text = Option.isSome(flags.body) ? flags.body.value : yield* readStdin
      const message = { body: yield* jsonOf("The message", text), ...given(flags.options) }
      const payload = { messages: [message] }
      const { messages } = yield* call(client.asMember.queues.publish({ ...one, payload }))
      if (asJson) return yield* json(messages)
      yield* out(messages.map(({ id }) => id).join("\n"))
    })
).pipe(Command.withDescription("Publish a message; prints its id"))

const stats = on("stats", {}, ({ one }, { client, json: asJson }) =>
  Effect.gen(function* () {
    const found = yield* call(client.asMember.queues.stats(one))
    if (asJson) return yield* json(found)
    yield* out(facts(Object.entries(found).map(([name, value]) => [name, String(value ?? "none")])))
  })
).pipe(Command.withDescription("Count the messages"))

const redrive = on(
  "redrive",
  { limit: integer("limit", "Messages at most (default 1000)") },
  ({ one }, { client, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { redriven } = yield* call(client.asMember.queues.redrive({ ...one, payload: given(flags) }))
      yield* asJson ? json({ redriven }) : say(`${redriven} messages get another chance`)
    })
).pipe(Command.withDescription("Give what was given up another chance"))

const purge = on("purge", { yes }, ({ name, one }, { client, json: asJson, flags }) =>
  Effect.gen(function* () {
    yield* confirmName(`This throws away all messages of "${name}".`, name, flags.yes)
    const { purged } = yield* call(client.asMember.queues.purge(one))
    yield* asJson ? json({ purged }) : say(`${purged} messages are gone`)
  })
).pipe(Command.withDescription("Throw all messages away"))

const rm = remove({
  warning: (name) => `This deletes the queue "${name}" and its messages.`,
  send: ({ asOwner }, one) => asOwner.queues.delete(one),
  address: ({ name }, { project, environment }) => `${project}/${environment}/Queue/${name}`
}).pipe(Command.withDescription("Delete a queue and its messages"))

export const queues = Command.make("queues").pipe(
  Command.withDescription("Durable queues whose messages are posted to the app"),
  Command.withSubcommands([list, get, create, change, publish, stats, redrive, purge, pause, resume, rm])
)
