/** `svc db branch`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { DatabaseSku } from "#schemas/catalog.ts"
import { DatabaseBranchSpec } from "#schemas/database-branch.ts"
import { following, theDatabase } from "#src/backups/commands.ts"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, waiting, yes } from "#src/cli/flags.ts"
import { json, paint, say } from "#src/cli/output.ts"
import { region, regionOr } from "#src/cli/region.ts"
import { inEnvironment, resourceCommands } from "#src/cli/resource-commands.ts"
import { showConnection } from "#src/cli/service.ts"
import { type Waiting, waitForOne } from "#src/cli/wait.ts"
import type { BranchView } from "./api.ts"

const name = Argument.String("name").pipe(Argument.withDescription("Name or id of the branch"))
const { command, on, ls, get, update, remove } = resourceCommands({
  scope: { ...inEnvironment, at: theDatabase },
  noun: "branch",
  plural: "branches",
  argument: name,
  list: ({ asMember }, database) => asMember.databaseBranches.list(database),
  nameOf: (branch) => branch.name,
  one: ({ params }, { id }) => ({ params: { ...params, branchId: id }, headers: {} }),
  missing: (name, place) => `The database of ${place} has no branch "${name}"`
})

const line = ({ name, status, hydrationProgressPercent, failure: why }: BranchView) =>
  status === "hydrating"
    ? `${name}  copying ${hydrationProgressPercent} %`
    : `${name}  ${why === null ? status : `${status}: ${why.detail}`}`

interface BranchParams {
  readonly orgId: string
  readonly projectId: string
  readonly databaseId: string
  readonly branchId: string
}

/** Until a branch is ready or promoted, or is not going to be. */
const settled = Effect.fnUntraced(function* (
  params: BranchParams,
  wanted: "ready" | "promoted",
  flags: Waiting
) {
  const { asMember } = yield* Client
  const last = yield* following(
    Effect.map(call(asMember.databaseBranches.get({ params })), ({ body }) => body),
    line,
    ({ status, connectionReady }) =>
      status === "failed" ||
      status === "expired" ||
      (wanted === "ready" ? connectionReady : status === wanted),
    flags
  )
  return last.status === "failed" || last.status === "expired" ? yield* failure(line(last)) : last
})

const list = ls({
  columns: {
    NAME: (branch) => branch.name,
    ENVIRONMENT: ({ environment }) => environment,
    STATUS: ({ status, progressPercent }) =>
      status === "hydrating" ? `${status} ${progressPercent} %` : status,
    ADDRESS: ({ host, port }) => (host === null ? "" : `${host}:${port}`),
    EXPIRES: ({ expiresAt }) => expiresAt ?? "never"
  },
  empty: (place) => `The database of ${place} has no branches`
}).pipe(Command.withDescription("List the branches of a database"))

const show = get((branch) => [
  ["Name", branch.name],
  ["Id", branch.id],
  ["Environment", branch.environment],
  ["Status", branch.status === "hydrating" ? `hydrating, ${branch.progressPercent} %` : branch.status],
  ["Trouble", branch.failure === null ? "none" : branch.failure.detail],
  ["Source", branch.source.pointInTime ?? branch.source.backupId ?? branch.source.kind],
  ["Size", branch.sku],
  ["Address", branch.host === null ? "not ready" : `${branch.host}:${branch.port}`],
  ["Expires", branch.expiresAt ?? "never"],
  ["Created", branch.createdAt]
])

const days = Flag.Int("expires-in-days").pipe(
  Flag.withDescription("Days until it is removed by itself (default 7); 0: never"),
  Flag.optional
)
const expiry = (days: number | undefined) =>
  days === undefined ? {} : { expiresInDays: days === 0 ? null : days }
const defaults = Schema.decodeUnknownSync(Schema.Struct({ sku: DatabaseBranchSpec.fields.sku }))({})

const create = command(
  "create",
  {
    ...waiting,
    name,
    into: Flag.String("into").pipe(
      Flag.withDescription("Environment that the branch is for (default: the one of its database)"),
      Flag.optional
    ),
    at: Flag.String("at").pipe(
      Flag.withDescription("As it was at a moment, such as 2026-02-01T12:30:00Z (default: as it is now)"),
      Flag.optional
    ),
    backup: Flag.String("backup").pipe(
      Flag.withDescription("Id of a backup, instead of --at"),
      Flag.optional
    ),
    sku: Flag.Literals("sku", DatabaseSku.literals).pipe(Flag.withDefault(defaults.sku)),
    region,
    days,
    deleteOnPreviewClose: Flag.Boolean("delete-on-preview-close").pipe(Flag.withDefault(false))
  },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const moment = Option.getOrUndefined(flags.at)
      const backupId = Option.getOrUndefined(flags.backup)
      if (moment !== undefined && backupId !== undefined)
        return yield* failure("Say --at or --backup, not both", exitCodes.usage)
      const source =
        moment !== undefined
          ? ({ kind: "point_in_time", pointInTime: moment } as const)
          : backupId !== undefined
            ? ({ kind: "backup", backupId } as const)
            : ({ kind: "current" } as const)
      const { name, into, sku, deleteOnPreviewClose } = flags
      const database = yield* at
      const payload = {
        name,
        environment: Option.getOrElse(into, () => where.environment),
        sku,
        region: yield* regionOr(flags.region, database.params),
        source,
        deleteOnPreviewClose,
        ...expiry(Option.getOrUndefined(flags.days))
      }
      const made = yield* call(client.asOwner.databaseBranches.create({ ...database, headers: {}, payload }))
      const params = { ...database.params, branchId: made.id }
      const last = flags.wait ? yield* settled(params, "ready", flags) : made
      if (asJson) return yield* json(last)
      yield* say(
        flags.wait
          ? `${name} ${paint("green", "is ready")}; svc db branch rotate ${where.project} ${name} shows how to connect`
          : `${name} is on its way`
      )
    })
).pipe(
  Command.withDescription("Copy a database, as it is or as it was"),
  Command.withExamples([
    { command: "svc db branch create shop trial", description: "As it is now, beside its database" },
    {
      command: "svc db branch create shop before-friday --into staging --at 2026-02-06T00:00:00Z",
      description: "As it was"
    }
  ])
)

const change = update({
  settings: {
    days,
    deleteOnPreviewClose: Flag.Boolean("delete-on-preview-close").pipe(Flag.optional)
  },
  waits: false,
  payload: ({ days, ...others }) => Effect.succeed({ ...expiry(days), ...others }),
  send: ({ asMember }, request) => asMember.databaseBranches.update(request),
  changed: ({ body }) => body,
  say: ({ name, expiresAt }) => `${name} expires: ${expiresAt ?? "never"}`
}).pipe(Command.withDescription("Change when a branch expires"))

const promote = on("promote", { ...waiting, yes }, ({ name, one }, { client, where, json: asJson, flags }) =>
  Effect.gen(function* () {
    yield* confirmName(
      `This puts the data of "${name}" in the place of what the database of ${where.project}/${where.environment} holds, which is kept as a branch for seven days.`,
      where.project,
      flags.yes
    )
    const begun = yield* call(client.asOwner.databaseBranches.promote(one))
    const last = flags.wait ? yield* settled(one.params, "promoted", flags) : begun
    if (flags.wait) yield* waitForOne(one.params.databaseId, flags)
    if (asJson) return yield* json(last)
    yield* say(
      flags.wait
        ? "The database has the data of the branch; its address and its password are as they were"
        : "The promotion is stored and goes on"
    )
  })
).pipe(Command.withDescription("Put the data of a branch in the place of the database's"))

const rotate = on("rotate", {}, ({ one }, { client, json }) =>
  Effect.flatMap(call(client.asMember.databaseBranches.rotatePassword(one)), (made) =>
    showConnection(made, json, "")
  )
).pipe(Command.withDescription("Give the branch a new password and show how to connect"))

const rm = remove({
  warning: (name) => `This deletes the branch "${name}" and its data.`,
  send: ({ asOwner }, one) => asOwner.databaseBranches.delete(one),
  address: ({ name, environment }, { project }) => `${project}/${environment}/DatabaseBranch/${name}`
}).pipe(Command.withDescription("Delete a branch and its data"))

export const branch = Command.make("branch").pipe(
  Command.withDescription("Full, independent copies of a database"),
  Command.withSubcommands([create, list, show, change, promote, rotate, rm])
)
