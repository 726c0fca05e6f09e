/** `svc database`. */
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import type { DatabaseReplica } from "#schemas/database.ts"
import { recoveryPoints, restore } from "#src/backups/commands.ts"
import { branch } from "#src/branches/commands.ts"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, type Place, waiting, yes } from "#src/cli/flags.ts"
import { facts, json, out, table } from "#src/cli/output.ts"
import { commandIn, inEnvironment } from "#src/cli/resource-commands.ts"
import { deleted, showConnection } from "#src/cli/service.ts"
import { findAt, waitForOne, whileShowing } from "#src/cli/wait.ts"
import type { Summary } from "#src/cli/watch.ts"

/** Whether a resource is the database that a command is about. */
const isDatabase = (where: Place) => (resource: Summary) =>
  resource.kind === "Database" &&
  resource.environment === where.environment &&
  resource.project === where.project

const replicaHead = ["STANDBY", "STATE", "ADDRESS", "BEHIND", ""]
const replicaRow = ({ number, state, host, port, lagBytes, lagSeconds, problem }: DatabaseReplica) => [
  String(number),
  state,
  port === null ? "" : `${host}:${port}`,
  lagBytes === null
    ? ""
    : `up to ${Math.max(1, lagBytes / 2 ** 20)} MiB${lagSeconds === null ? "" : `, ${Math.max(10, lagSeconds)} s`}`,
  problem ?? ""
]

const command = commandIn(inEnvironment)

const get = command("get", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const { body } = yield* call(client.asMember.database.get(yield* at))
    if (asJson) return yield* json(body)
    yield* out(
      facts([
        ["Status", body.status],
        ["Region", body.region],
        ["Address", body.host === null ? "not started yet" : `${body.host}:${body.port}`],
        ["Database", body.dbName ?? ""],
        ["User", body.user ?? ""],
        ...(body.failover === null
          ? []
          : [["Failed over", `to standby ${body.failover.replica} at ${body.failover.at}`] as const])
      ])
    )
    if (body.replicas.length > 0) yield* out(`\n${table(replicaHead, body.replicas.map(replicaRow))}`)
  })
).pipe(Command.withDescription("Show the database of an environment"))

const provision = command("provision", waiting, ({ client, at, where, json, flags }) =>
  Effect.gen(function* () {
    const made = yield* whileShowing(
      call(client.asMember.database.provision({ ...(yield* at), headers: {}, payload: {} })),
      isDatabase(where),
      flags
    )
    const found = flags.wait && made.status !== "ready" ? yield* findAt("Database", where) : undefined
    if (found !== undefined) yield* waitForOne(found.uid, flags)
    yield* showConnection(
      { ...made, status: flags.wait ? "ready" : made.status },
      json,
      `svc database rotate ${where.project} -e ${where.environment}`
    )
  })
).pipe(
  Command.withAlias("create"),
  Command.withDescription("Provision a database; its connection string is shown this once")
)

const rotate = command("rotate", waiting, ({ client, at, where, json, flags }) =>
  Effect.gen(function* () {
    const made = yield* whileShowing(
      call(client.asMember.database.rotatePassword({ ...(yield* at), headers: {} })),
      isDatabase(where),
      flags
    )
    yield* showConnection(made, json, "")
  })
).pipe(Command.withDescription("Replace the password; the old one is dead when this answers"))

const rm = command("delete", { ...waiting, yes }, ({ client, at, where, json, flags }) =>
  Effect.gen(function* () {
    const found = yield* findAt("Database", where)
    if (found === undefined) {
      return yield* failure(
        `There is no database in ${where.project}/${where.environment}`,
        exitCodes.notFound
      )
    }
    yield* confirmName(
      `This deletes the database of ${where.project}/${where.environment} and its data.`,
      where.project,
      flags.yes
    )
    yield* call(client.asOwner.database.delete({ ...(yield* at), headers: {} }))
    yield* deleted(found.uid, found.address, { ...flags, json })
  })
).pipe(Command.withAlias("rm"), Command.withDescription("Delete the database and its data"))

export const database = Command.make("database").pipe(
  Command.withAlias("db"),
  Command.withDescription("The database of an environment"),
  Command.withSubcommands([get, provision, rotate, rm, branch, recoveryPoints, restore])
)
