/** `svc database`. */
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import type { DatabaseReplica } from "#schemas/database.ts"
import { recoveryPoints, restore } from "./backup-commands.ts"
import { branch } from "./branch-commands.ts"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, at, confirmName, online, type Place, place, waiting, yes } from "./flags.ts"
import { facts, json, out, table } from "./output.ts"
import { deleted, showConnection } from "./service.ts"
import { findAt, waitForOne, whileShowing } from "./wait.ts"
import type { Summary } from "./watch.ts"

/** Whether a resource is the database that a command is about. */
const isDatabase = (flags: Place) => (resource: Summary) =>
  resource.kind === "Database" &&
  resource.environment === flags.environment &&
  resource.project === flags.project

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

const get = Command.make("get", { ...place, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { body } = yield* call(asMember.database.get(at(org, flags)))
      if (flags.json) return yield* json(body)
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
  )
).pipe(Command.withDescription("Show the database of an environment"))

const provision = Command.make("provision", { ...place, ...waiting, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const made = yield* whileShowing(
        call(asMember.database.provision({ ...at(org, flags), headers: {}, payload: {} })),
        isDatabase(flags),
        flags
      )
      const found = flags.wait && made.status !== "ready" ? yield* findAt("Database", flags) : undefined
      if (found !== undefined) yield* waitForOne(found.uid, flags)
      yield* showConnection(
        { ...made, status: flags.wait ? "ready" : made.status },
        flags.json,
        `svc database rotate ${flags.project} -e ${flags.environment}`
      )
    })
  )
).pipe(
  Command.withAlias("create"),
  Command.withDescription("Provision a database; its connection string is shown this once")
)

const rotate = Command.make("rotate", { ...place, ...waiting, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const made = yield* whileShowing(
        call(asMember.database.rotatePassword({ ...at(org, flags), headers: {} })),
        isDatabase(flags),
        flags
      )
      yield* showConnection(made, flags.json, "")
    })
  )
).pipe(Command.withDescription("Replace the password; the old one is dead when this answers"))

const rm = Command.make("delete", { ...place, ...waiting, json: asJson, yes }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner, org } = yield* Client
      const found = yield* findAt("Database", flags)
      if (found === undefined) {
        return yield* failure(
          `There is no database in ${flags.project}/${flags.environment}`,
          exitCodes.notFound
        )
      }
      yield* confirmName(
        `This deletes the database of ${flags.project}/${flags.environment} and its data.`,
        flags.project,
        flags.yes
      )
      yield* call(asOwner.database.delete({ ...at(org, flags), headers: {} }))
      yield* deleted(found.uid, found.address, flags)
    })
  )
).pipe(Command.withAlias("rm"), Command.withDescription("Delete the database and its data"))

export const database = Command.make("database").pipe(
  Command.withAlias("db"),
  Command.withDescription("The database of an environment"),
  Command.withSubcommands([get, provision, rotate, rm, branch, recoveryPoints, restore])
)
