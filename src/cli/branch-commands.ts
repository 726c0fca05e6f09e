/** `svc db branch`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { DatabaseSku, defaultRegion, regions } from "#schemas/catalog.ts"
import { following, theDatabase } from "./backup-commands.ts"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, confirmName, online, type Place, place, waiting, yes } from "./flags.ts"
import { facts, json, out, paint, say, table } from "./output.ts"
import { deleted, showConnection } from "./service.ts"
import { type Waiting, waitForOne } from "./wait.ts"

const branchName = Argument.String("name").pipe(Argument.withDescription("Name or id of the branch"))

const all = Effect.fnUntraced(function* (flags: Place) {
  const { asMember } = yield* Client
  const database = yield* theDatabase(flags)
  return { database, branches: yield* call(asMember.databaseBranches.list(database)) }
})
type Branch = Effect.Success<ReturnType<typeof all>>["branches"][number]

const find = Effect.fnUntraced(function* (flags: Place & { readonly name: string }) {
  const { database, branches } = yield* all(flags)
  const found =
    branches.find(({ id }) => id === flags.name) ??
    // What is being deleted gives way to what took its name.
    branches
      .filter(({ name }) => name === flags.name)
      .sort((a, b) => b.createdAt.localeCompare(a.createdAt))[0]
  if (found === undefined) {
    return yield* failure(
      `The database of ${flags.project}/${flags.environment} has no branch "${flags.name}"`,
      exitCodes.notFound
    )
  }
  return { branch: found, params: { ...database.params, branchId: found.id } }
})

const line = ({ name, status, hydrationProgressPercent, failure: why }: Branch) =>
  status === "hydrating"
    ? `${name}  copying ${hydrationProgressPercent} %`
    : `${name}  ${why === null ? status : `${status}: ${why.detail}`}`

const show = (branch: Branch) =>
  out(
    facts([
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
  )

/** Until a branch is ready or promoted, or is not going to be. */
const settled = Effect.fnUntraced(function* (
  params: Effect.Success<ReturnType<typeof find>>["params"],
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

const ls = Command.make("ls", { ...place, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { branches } = yield* all(flags)
      if (flags.json) return yield* json(branches)
      if (branches.length === 0)
        return yield* say(`The database of ${flags.project}/${flags.environment} has no branches`)
      yield* out(
        table(
          ["NAME", "ENVIRONMENT", "STATUS", "ADDRESS", "EXPIRES"],
          branches.map(({ name, environment, status, progressPercent, host, port, expiresAt }) => [
            name,
            environment,
            status === "hydrating" ? `${status} ${progressPercent} %` : status,
            host === null ? "" : `${host}:${port}`,
            expiresAt ?? "never"
          ])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List the branches of a database"))

const get = Command.make("get", { ...place, json: asJson, name: branchName }, (flags) =>
  online(
    flags,
    Effect.flatMap(find(flags), ({ branch }) => (flags.json ? json(branch) : show(branch)))
  )
).pipe(Command.withDescription("Show a branch"))

const days = Flag.Int("expires-in-days").pipe(
  Flag.withDescription("Days until it is removed by itself (default 7); 0: never"),
  Flag.optional
)
const expiry = (flag: Option.Option<number>) =>
  Option.isSome(flag) ? { expiresInDays: flag.value === 0 ? null : flag.value } : {}

const create = Command.make(
  "create",
  {
    ...place,
    ...waiting,
    json: asJson,
    name: branchName,
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
    sku: Flag.Literals("sku", DatabaseSku.literals).pipe(Flag.withDefault("db-n1" as const)),
    region: Flag.Literals("region", regions).pipe(Flag.withDefault(defaultRegion)),
    days,
    deleteOnPreviewClose: Flag.Boolean("delete-on-preview-close").pipe(Flag.withDefault(false))
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner } = yield* Client
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
        const { name, into, sku, region, deleteOnPreviewClose } = flags
        const database = yield* theDatabase(flags)
        const payload = {
          name,
          environment: Option.getOrElse(into, () => flags.environment),
          sku,
          region,
          source,
          deleteOnPreviewClose,
          ...expiry(flags.days)
        }
        const made = yield* call(asOwner.databaseBranches.create({ ...database, headers: {}, payload }))
        const params = { ...database.params, branchId: made.id }
        const last = flags.wait ? yield* settled(params, "ready", flags) : made
        if (flags.json) return yield* json(last)
        yield* say(
          flags.wait
            ? `${name} ${paint("green", "is ready")}; svc db branch rotate ${flags.project} ${name} shows how to connect`
            : `${name} is on its way`
        )
      })
    )
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

const update = Command.make(
  "update",
  {
    ...place,
    json: asJson,
    name: branchName,
    days,
    deleteOnPreviewClose: Flag.Boolean("delete-on-preview-close").pipe(Flag.optional)
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember } = yield* Client
        const { deleteOnPreviewClose } = flags
        const payload = {
          ...expiry(flags.days),
          ...(Option.isSome(deleteOnPreviewClose) ? { deleteOnPreviewClose: deleteOnPreviewClose.value } : {})
        }
        if (Object.keys(payload).length === 0)
          return yield* failure("Say what to change; --help lists it", exitCodes.usage)
        const { params } = yield* find(flags)
        const { body } = yield* call(asMember.databaseBranches.update({ params, headers: {}, payload }))
        yield* flags.json ? json(body) : say(`${body.name} expires: ${body.expiresAt ?? "never"}`)
      })
    )
).pipe(Command.withDescription("Change when a branch expires"))

const promote = Command.make(
  "promote",
  { ...place, ...waiting, json: asJson, name: branchName, yes },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner } = yield* Client
        const { branch, params } = yield* find(flags)
        yield* confirmName(
          `This puts the data of "${branch.name}" in the place of what the database of ${flags.project}/${flags.environment} holds, which is kept as a branch for seven days.`,
          flags.project,
          flags.yes
        )
        const begun = yield* call(asOwner.databaseBranches.promote({ params, headers: {} }))
        const last = flags.wait ? yield* settled(params, "promoted", flags) : begun
        if (flags.wait) yield* waitForOne(params.databaseId, flags)
        if (flags.json) return yield* json(last)
        yield* say(
          flags.wait
            ? "The database has the data of the branch; its address and its password are as they were"
            : "The promotion is stored and goes on"
        )
      })
    )
).pipe(Command.withDescription("Put the data of a branch in the place of the database's"))

const rotate = Command.make("rotate", { ...place, json: asJson, name: branchName }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember } = yield* Client
      const { params } = yield* find(flags)
      const made = yield* call(asMember.databaseBranches.rotatePassword({ params, headers: {} }))
      yield* showConnection(made, flags.json, "")
    })
  )
).pipe(Command.withDescription("Give the branch a new password and show how to connect"))

const rm = Command.make("delete", { ...place, ...waiting, json: asJson, name: branchName, yes }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner } = yield* Client
      const { branch, params } = yield* find(flags)
      yield* confirmName(`This deletes the branch "${branch.name}" and its data.`, branch.name, flags.yes)
      yield* call(asOwner.databaseBranches.delete({ params, headers: {} }))
      yield* deleted(branch.id, `${flags.project}/${branch.environment}/DatabaseBranch/${branch.name}`, flags)
    })
  )
).pipe(Command.withAlias("rm"), Command.withDescription("Delete a branch and its data"))

export const branch = Command.make("branch").pipe(
  Command.withDescription("Full, independent copies of a database"),
  Command.withSubcommands([create, ls, get, update, promote, rotate, rm])
)
