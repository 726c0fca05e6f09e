/** `svc telemetry`: nothing is sent unless somebody turns it on, and then one event. */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import * as Clock from "effect/Clock"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { call } from "#src/cli/client.ts"
import { attempt, configFolder, readText, replaceFile } from "#src/cli/config-folder.ts"
import { failure } from "#src/cli/failure.ts"
import { connection, loginOf } from "#src/cli/flags.ts"
import { json, out, say, table } from "#src/cli/output.ts"
import { commandIn, inOrganization } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { TelemetryEvent } from "./api.ts"

const file = Effect.map(configFolder, (folder) => path.join(folder, "telemetry.json"))
/** What was sent, and where to. */
const Consent = Schema.fromJsonString(Schema.Struct({ apiUrl: Schema.String, anonymousId: Schema.String }))
const decodeConsent = Schema.decodeUnknownOption(Consent)
const encodeConsent = Schema.encodeSync(Consent)

const consent = Effect.gen(function* () {
  const name = yield* file
  const text = yield* attempt(`Cannot read ${name}`, () => readText(name))
  return text === undefined ? undefined : decodeConsent(text)
})

const explanation = [
  "Telemetry is on: the platform was told once that its command line is in use here.",
  "Sent were the time, the system, the processor's architecture and a random number of which it keeps a digest.",
  "No name, no address, no credential, no command. svc telemetry off ends it."
]

/** Without any credential: nothing leads from the event to whoever is signed in. */
const tell = Effect.fnUntraced(function* (apiUrl: string, anonymousId: string) {
  const event = yield* Schema.decodeUnknownEffect(TelemetryEvent)({
    name: "cli_installed",
    at: new Date(yield* Clock.currentTimeMillis).toISOString(),
    anonymousId,
    properties: { channel: "shell", os: os.type(), arch: os.machine() }
  }).pipe(Effect.mapError(() => failure("Telemetry knows no system like this one; nothing was sent")))
  const body = JSON.stringify({ events: [yield* Effect.orDie(Schema.encodeEffect(TelemetryEvent)(event))] })
  const status = yield* Effect.tryPromise({
    try: async (signal) => {
      const response = await fetch(new URL("/v1/telemetry/events", apiUrl), {
        method: "POST",
        headers: { "content-type": "application/json" },
        body,
        signal
      })
      await response.body?.cancel()
      return response.status
    },
    catch: () => failure(`${apiUrl} cannot be reached; nothing was turned on`)
  }).pipe(
    Effect.timeoutOrElse({
      duration: "10 seconds",
      orElse: () => Effect.fail(failure(`${apiUrl} did not answer; nothing was turned on`))
    })
  )
  if (status === 503) return yield* failure("This platform takes no telemetry; nothing was turned on")
  if (status !== 202) return yield* failure(`The platform answered ${status}; nothing was turned on`)
})

const on = Command.make(
  "on",
  { connection },
  Effect.fnUntraced(function* (flags) {
    if ((yield* consent) !== undefined) return yield* say(...explanation)
    const { apiUrl } = yield* loginOf(flags.connection)
    const anonymousId = randomUUID()
    const put = yield* replaceFile(yield* file, 200)
    yield* tell(apiUrl, anonymousId)
    yield* put(`${encodeConsent({ apiUrl, anonymousId })}\n`)
    yield* say(...explanation)
  }, Effect.scoped)
).pipe(Command.withDescription("Tell the platform, once, that its command line is in use here"))

const off = Command.make(
  "off",
  {},
  Effect.fnUntraced(function* () {
    const name = yield* file
    yield* attempt(`Cannot remove ${name}`, () => fs.rm(name, { force: true }))
    yield* say("Telemetry is off: nothing is sent.")
  })
).pipe(Command.withDescription("Send nothing, as before it was turned on"))

const status = Command.make(
  "status",
  {},
  Effect.fnUntraced(function* () {
    yield* out((yield* consent) === undefined ? "off" : "on")
  })
).pipe(Command.withDescription("Whether it is on"))

const moment = (name: string, description: string) =>
  Flag.Date(name).pipe(Flag.withDescription(description), Flag.map(DateTime.fromDateUnsafe), Flag.optional)

const funnel = commandIn(inOrganization)(
  "funnel",
  {
    since: moment("since", "Where it begins (default thirty days before the end)"),
    until: moment("until", "Where it ends (default now)")
  },
  Effect.fnUntraced(function* ({ client: { asMember }, at, json: asJson, flags }) {
    const found = yield* call(asMember.productTelemetry.getFunnel({ ...(yield* at), query: given(flags) }))
    yield* asJson
      ? json(found)
      : out(
          table(
            ["STEP", "COUNTED", "COUNT", "FIRST", "LAST"],
            found.steps.map(({ name, grain, count, firstAt, lastAt }) => [
              name,
              grain,
              String(count),
              firstAt ?? "-",
              lastAt ?? "-"
            ])
          )
        )
  })
).pipe(Command.withDescription("Steps that the organization took, in at most 90 days"))

export const telemetry = Command.make("telemetry").pipe(
  Command.withDescription("What the command line tells the platform: nothing, unless it is turned on"),
  Command.withSubcommands([status, on, off, funnel])
)
