/** `svc destinations`: object storage of one's own, where copies of backups are kept. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, readSecret, waiting, yes } from "#src/cli/flags.ts"
import { readTextFile, variable } from "#src/cli/invocation.ts"
import { json, out, paint, say } from "#src/cli/output.ts"
import { inOrganization, resourceCommands } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { detachable, waitFor } from "#src/cli/wait.ts"
import type { BackupDestinationView } from "./api.ts"

const { command, on, ls, get, update } = resourceCommands({
  scope: inOrganization,
  noun: "backup destination",
  plural: "backup destinations",
  argument: Argument.String("destination").pipe(Argument.withDescription("Its name or id")),
  list: ({ asMember }, at) => asMember.backupDestinations.list(at),
  nameOf: (destination) => destination.name,
  one: ({ params }, { id }) => ({ params: { ...params, destinationId: id }, headers: {} })
})

const state = ({ status }: typeof BackupDestinationView.Type) =>
  paint(status === "ready" ? "green" : status === "failed" ? "red" : "yellow", status)

const list = ls({
  columns: {
    NAME: (destination) => destination.name,
    WHERE: ({ endpoint, bucket, prefix }) => `${endpoint}/${bucket}${prefix === "" ? "" : `/${prefix}`}`,
    VERSION: ({ version }) => String(version),
    STATUS: state,
    "LAST TESTED": ({ lastTestedAt }) => lastTestedAt ?? "never"
  },
  empty: () => "Backups are kept on the platform's own machine alone"
})

const show = get((one) => [
  ["Name", one.name],
  ["Id", one.id],
  ["Endpoint", one.endpoint],
  ["Bucket", one.bucket],
  ["Prefix", one.prefix],
  ["Region", one.region ?? "none"],
  ["Version", String(one.version)],
  ["Status", state(one)],
  ["Fault", one.fault === null ? "none" : `${one.fault.message} (${one.fault.code})`],
  ["Last tested", one.lastTestedAt ?? "never"]
])

const keyId = Flag.String("access-key-id").pipe(Flag.withDescription("Name of the access key"))
const secretFile = Flag.String("secret-key-file").pipe(
  Flag.withDescription(
    "File with the secret access key (else SVC_DESTINATION_SECRET_KEY, else standard input)"
  ),
  Flag.optional
)
const places = {
  endpoint: Flag.String("endpoint").pipe(Flag.withDescription("https://... of the service")),
  bucket: Flag.String("bucket")
}
const details = {
  prefix: Flag.String("prefix").pipe(
    Flag.withDescription("What the keys of all objects begin with"),
    Flag.optional
  ),
  region: Flag.String("region").pipe(Flag.optional)
}

/** Never an argument, which other users of the machine could see. A session token comes by a variable alone. */
const credentialsOf = Effect.fnUntraced(function* (accessKeyId: string, file: string | undefined) {
  const fromVariable = yield* variable("SVC_DESTINATION_SECRET_KEY")
  const secretAccessKey = (
    file !== undefined
      ? yield* Effect.mapError(readTextFile(file), () => failure(`${file} cannot be read`))
      : (fromVariable ?? (yield* readSecret("Secret access key")))
  ).trim()
  if (secretAccessKey === "") return yield* failure("There is no secret access key", exitCodes.usage)
  const sessionToken = yield* variable("SVC_DESTINATION_SESSION_TOKEN")
  return { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) }
})

const create = command(
  "create",
  { name: Argument.String("name"), places, details, accessKeyId: keyId, secretFile },
  ({ client, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const credentials = yield* credentialsOf(flags.accessKeyId, Option.getOrUndefined(flags.secretFile))
      yield* say("Writing, reading and deleting test objects there ...")
      const payload = { name: flags.name, ...flags.places, ...given(flags.details), credentials }
      const made = yield* call(
        client.asMember.backupDestinations.create({ ...(yield* at), headers: {}, payload })
      )
      if (asJson) return yield* json(made)
      yield* say(`${made.name} ${paint("green", "can be used")}; name this id in backup.destinationIds:`)
      yield* out(made.id)
    })
).pipe(
  Command.withDescription("Create a backup destination; the secret key comes from standard input"),
  Command.withExamples([
    {
      command:
        "svc destinations create offsite --endpoint https://s3.example.com --bucket backups --access-key-id AKIA...",
      description: "Asks for the secret key, and tries it out"
    }
  ])
)

const change = update({
  settings: {
    name: Flag.String("name").pipe(Flag.withDescription("Another name"), Flag.optional),
    endpoint: places.endpoint.pipe(Flag.optional),
    bucket: places.bucket.pipe(Flag.optional),
    ...details,
    accessKeyId: keyId.pipe(Flag.optional),
    secretFile
  },
  waits: false,
  payload: ({ accessKeyId, secretFile, ...others }) =>
    Effect.map(
      accessKeyId === undefined ? Effect.undefined : credentialsOf(accessKeyId, secretFile),
      (credentials) => ({ ...others, ...(credentials === undefined ? {} : { credentials }) })
    ),
  send: ({ asMember }, request) => asMember.backupDestinations.update(request),
  changed: ({ body }) => body,
  say: ({ name, version }) => `${name} ${paint("green", "is changed")}; version ${version} is in force`
}).pipe(
  Command.withDescription(
    "Change a backup destination; copies that are there keep the version that made them"
  )
)

const test = on("test", {}, ({ name, one }, { client, json: asJson }) =>
  Effect.gen(function* () {
    const tested = yield* call(client.asMember.backupDestinations.test(one))
    yield* asJson ? json(tested) : say(`${name} ${paint("green", "works")} (${tested.testedAt})`)
  })
).pipe(Command.withDescription("Write, read and delete a test object there; exits with 1 if that fails"))

const rm = on("delete", { ...waiting, yes }, ({ item: { id }, name, one }, { client, json: asJson, flags }) =>
  Effect.gen(function* () {
    yield* confirmName(
      `This deletes the backup destination "${name}"; what is stored there stays.`,
      name,
      flags.yes
    )
    yield* call(client.asOwner.backupDestinations.delete(one))
    if (flags.wait) {
      const address = `BackupDestination/${name}`
      yield* detachable(waitFor(new Map([[id, { address, generation: null }]]), flags.timeout))
    }
    yield* asJson ? json({ id, deleted: flags.wait }) : say(`${name} is deleted`)
  })
).pipe(Command.withAlias("rm"), Command.withDescription("Delete a backup destination that nothing uses"))

export const destinations = Command.make("destinations").pipe(
  Command.withDescription("Object storage of your own, where copies of backups are kept"),
  Command.withSubcommands([list, show, create, change, test, rm])
)
