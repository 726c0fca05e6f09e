/** `svc destinations`: object storage of one's own, where copies of backups are kept. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, confirmName, connection, online, readSecret, waiting, yes } from "./flags.ts"
import { readTextFile, variable } from "./invocation.ts"
import { facts, json, out, paint, say, table } from "./output.ts"
import { detachable, waitFor } from "./wait.ts"

const which = Argument.String("destination").pipe(Argument.withDescription("Its name or id"))

const list = Effect.gen(function* () {
  const { asMember, org } = yield* Client
  return yield* call(asMember.backupDestinations.list({ params: { orgId: org } }))
})

/** The one that somebody names. */
const find = Effect.fnUntraced(function* (name: string) {
  const { org } = yield* Client
  const found = (yield* list).find((one) => one.id === name || one.name === name)
  if (found === undefined) {
    return yield* failure(`There is no backup destination "${name}" in "${org}"`, exitCodes.notFound)
  }
  return { ...found, params: { orgId: org, destinationId: found.id } }
})

type Shown = Effect.Success<typeof list>[number]

const state = ({ status }: Shown) =>
  paint(status === "ready" ? "green" : status === "failed" ? "red" : "yellow", status)
const where = ({ endpoint, bucket, prefix }: Shown) =>
  `${endpoint}/${bucket}${prefix === "" ? "" : `/${prefix}`}`

const ls = Command.make("ls", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const found = yield* list
      if (flags.json) return yield* json(found)
      if (found.length === 0) return yield* say("Backups are kept on the platform's own machine alone")
      yield* out(
        table(
          ["NAME", "WHERE", "VERSION", "STATUS", "LAST TESTED"],
          found.map((one) => [
            one.name,
            where(one),
            String(one.version),
            state(one),
            one.lastTestedAt ?? "never"
          ])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List backup destinations"))

const get = Command.make("get", { ...connection, json: asJson, destination: which }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { params, ...one } = yield* find(flags.destination)
      if (flags.json) return yield* json(one)
      yield* out(
        facts([
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
      )
    })
  )
).pipe(Command.withDescription("Show a backup destination"))

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
const credentialsOf = Effect.fnUntraced(function* (accessKeyId: string, file: Option.Option<string>) {
  const fromVariable = yield* variable("SVC_DESTINATION_SECRET_KEY")
  const secretAccessKey = (
    Option.isSome(file)
      ? yield* Effect.mapError(readTextFile(file.value), () => failure(`${file.value} cannot be read`))
      : (fromVariable ?? (yield* readSecret("Secret access key")))
  ).trim()
  if (secretAccessKey === "") return yield* failure("There is no secret access key", exitCodes.usage)
  const sessionToken = yield* variable("SVC_DESTINATION_SESSION_TOKEN")
  return { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) }
})

const create = Command.make(
  "create",
  {
    ...connection,
    json: asJson,
    name: Argument.String("name"),
    ...places,
    ...details,
    accessKeyId: keyId,
    secretFile
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const credentials = yield* credentialsOf(flags.accessKeyId, flags.secretFile)
        yield* say("Writing, reading and deleting test objects there ...")
        const made = yield* call(
          asMember.backupDestinations.create({
            params: { orgId: org },
            headers: {},
            payload: {
              name: flags.name,
              endpoint: flags.endpoint,
              bucket: flags.bucket,
              ...(Option.isSome(flags.prefix) ? { prefix: flags.prefix.value } : {}),
              ...(Option.isSome(flags.region) ? { region: flags.region.value } : {}),
              credentials
            }
          })
        )
        if (flags.json) return yield* json(made)
        yield* say(`${made.name} ${paint("green", "can be used")}; name this id in backup.destinationIds:`)
        yield* out(made.id)
      })
    )
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

const update = Command.make(
  "update",
  {
    ...connection,
    json: asJson,
    destination: which,
    name: Flag.String("name").pipe(Flag.withDescription("Another name"), Flag.optional),
    endpoint: places.endpoint.pipe(Flag.optional),
    bucket: places.bucket.pipe(Flag.optional),
    ...details,
    accessKeyId: keyId.pipe(Flag.optional),
    secretFile
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember } = yield* Client
        const { params } = yield* find(flags.destination)
        const payload = {
          ...(Option.isSome(flags.name) ? { name: flags.name.value } : {}),
          ...(Option.isSome(flags.endpoint) ? { endpoint: flags.endpoint.value } : {}),
          ...(Option.isSome(flags.bucket) ? { bucket: flags.bucket.value } : {}),
          ...(Option.isSome(flags.prefix) ? { prefix: flags.prefix.value } : {}),
          ...(Option.isSome(flags.region) ? { region: flags.region.value } : {}),
          ...(Option.isSome(flags.accessKeyId)
            ? { credentials: yield* credentialsOf(flags.accessKeyId.value, flags.secretFile) }
            : {})
        }
        if (Object.keys(payload).length === 0)
          return yield* failure("Say what to change; --help lists it", exitCodes.usage)
        const { body } = yield* call(asMember.backupDestinations.update({ params, headers: {}, payload }))
        yield* flags.json
          ? json(body)
          : say(`${body.name} ${paint("green", "is changed")}; version ${body.version} is in force`)
      })
    )
).pipe(
  Command.withDescription(
    "Change a backup destination; copies that are there keep the version that made them"
  )
)

const test = Command.make("test", { ...connection, json: asJson, destination: which }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember } = yield* Client
      const { params, name } = yield* find(flags.destination)
      const tested = yield* call(asMember.backupDestinations.test({ params, headers: {} }))
      yield* flags.json ? json(tested) : say(`${name} ${paint("green", "works")} (${tested.testedAt})`)
    })
  )
).pipe(Command.withDescription("Write, read and delete a test object there; exits with 1 if that fails"))

const rm = Command.make(
  "delete",
  { ...connection, ...waiting, json: asJson, destination: which, yes },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner } = yield* Client
        const { params, name, id } = yield* find(flags.destination)
        yield* confirmName(
          `This deletes the backup destination "${name}"; what is stored there stays.`,
          name,
          flags.yes
        )
        yield* call(asOwner.backupDestinations.delete({ params, headers: {} }))
        if (flags.wait) {
          const address = `BackupDestination/${name}`
          yield* detachable(waitFor(new Map([[id, { address, generation: null }]]), flags.timeout))
        }
        yield* flags.json ? json({ id, deleted: flags.wait }) : say(`${name} is deleted`)
      })
    )
).pipe(Command.withAlias("rm"), Command.withDescription("Delete a backup destination that nothing uses"))

export const destinations = Command.make("destinations").pipe(
  Command.withDescription("Object storage of your own, where copies of backups are kept"),
  Command.withSubcommands([ls, get, create, update, test, rm])
)
