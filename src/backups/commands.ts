/** `svc backups`, and what of a database can be restored. */
import * as Clock from "effect/Clock"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, type Place, waiting, yes } from "#src/cli/flags.ts"
import { facts, json, out, say, table } from "#src/cli/output.ts"
import { commandIn, inEnvironment } from "#src/cli/resource-commands.ts"
import { detachable, type Waiting } from "#src/cli/wait.ts"

/** The request parameters of the database of an environment. */
export const theDatabase = Effect.fnUntraced(function* (where: Place) {
  const { asMember } = yield* Client
  const { params, query } = yield* inEnvironment.at(where)
  const { body } = yield* call(asMember.database.get({ params, query }))
  return { params: { ...params, databaseId: body.id } }
})

const megabytes = (bytes: number | null) => (bytes === null ? "" : `${(bytes / 1e6).toFixed(1)} MB`)
const pollMs = 500

/** Looks until it is so, showing each line once; what was asked for goes on when nobody waits any more. */
export const following = Effect.fnUntraced(function* <A, E, R>(
  look: Effect.Effect<A, E, R>,
  lineOf: (seen: A) => string,
  isEnd: (seen: A) => boolean,
  flags: Waiting
) {
  const startedAt = yield* Clock.currentTimeMillis
  let shown = ""
  const loop = Effect.gen(function* () {
    for (;;) {
      const seen = yield* look
      const line = lineOf(seen)
      if (line !== shown) {
        shown = line
        const seconds = (((yield* Clock.currentTimeMillis) - startedAt) / 1000).toFixed(1)
        yield* say(`${seconds.padStart(6)}s  ${line}`)
      }
      if (isEnd(seen)) return seen
      yield* Effect.sleep(pollMs)
    }
  })
  return yield* detachable(loop).pipe(
    Effect.timeoutOrElse({
      duration: flags.timeout * 1000,
      orElse: () =>
        Effect.fail(failure(`Not done after ${flags.timeout} s; it goes on by itself`, exitCodes.timeout))
    })
  )
})

const command = commandIn({ ...inEnvironment, at: theDatabase })

const ls = command("ls", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const backups = yield* call(client.asMember.backups.list(yield* at))
    if (asJson) return yield* json(backups)
    if (backups.length === 0) return yield* say("There are no backups yet; the first one comes by itself")
    yield* out(
      table(
        ["ID", "STATUS", "MADE", "SIZE", "STORED", "WHERE", "PROVEN"],
        backups.map((one) => [
          one.id,
          one.status === "running" ? `${one.progressPercent} %` : one.status,
          one.finishedAt ?? one.createdAt,
          megabytes(one.sizeBytes),
          megabytes(one.storedBytes),
          one.locations
            .map(({ kind, destinationId, complete }) =>
              kind === "local" ? "here" : `${destinationId}${complete ? "" : " (not yet)"}`
            )
            .join(", "),
          one.lastProvenAt ?? "never"
        ])
      )
    )
  })
).pipe(Command.withAlias("list"), Command.withDescription("List backups, newest first"))

const drill = Flag.Boolean("drill").pipe(
  Flag.withDescription("Prove it at once by restoring it into a scratch server"),
  Flag.withDefault(false)
)
const create = command("create", { ...waiting, drill }, ({ client: { asMember }, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const database = yield* at
    const made = yield* call(
      asMember.backups.create({ ...database, headers: {}, payload: { drill: flags.drill } })
    )
    const find = Effect.map(
      call(asMember.backups.list(database)),
      (list) => list.find(({ id }) => id === made.id) ?? made
    )
    const last = flags.wait
      ? yield* following(
          find,
          ({ status, step, progressPercent, error, drill: proof }) =>
            status === "running"
              ? `backup  ${step ?? ""} ${progressPercent} %`
              : `backup  ${error ?? status}${proof === null ? "" : `, drill ${proof.status}`}`,
          ({ status, drill: proof }) =>
            status === "failed" ||
            (status === "succeeded" &&
              (!flags.drill || proof?.status === "succeeded" || proof?.status === "failed")),
          flags
        )
      : made
    if (last.status === "failed") return yield* failure(`The backup failed: ${last.error ?? ""}`)
    if (flags.drill && last.drill?.status === "failed") {
      return yield* failure(
        `The backup ${last.id} was made and cannot be restored: ${last.drill.error ?? ""}`
      )
    }
    if (asJson) return yield* json(last)
    yield* out(last.id)
  })
).pipe(Command.withDescription("Back the database up now"))

export const restore = command(
  "restore",
  {
    ...waiting,
    yes,
    at: Flag.String("at").pipe(Flag.withDescription("A moment, such as 2026-02-01T12:30:00Z"), Flag.optional),
    backup: Flag.String("backup").pipe(Flag.withDescription("Id of a backup, instead of --at"), Flag.optional)
  },
  ({ client: { asOwner }, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const moment = Option.getOrUndefined(flags.at)
      const backupId = Option.getOrUndefined(flags.backup)
      const payload =
        moment !== undefined && backupId === undefined
          ? { pointInTime: moment }
          : backupId !== undefined && moment === undefined
            ? { backupId }
            : yield* failure("Say either --at or --backup", exitCodes.usage)
      const database = yield* at
      yield* confirmName(
        `This puts the database of ${where.project}/${where.environment} back to ${moment ?? `the backup ${backupId}`}. What it holds now is kept as a branch for seven days.`,
        where.project,
        flags.yes
      )
      const made = yield* call(asOwner.backups.restore({ ...database, headers: {}, payload }))
      const branch = {
        params: { ...database.params, branchId: made.id }
      }
      const last = flags.wait
        ? yield* following(
            Effect.map(call(asOwner.databaseBranches.get(branch)), ({ body }) => body),
            ({ status, progressPercent, failure: why }) =>
              `restore  ${why === null ? `${status} ${progressPercent} %` : `${status}: ${why.detail}`}`,
            ({ status }) => status === "promoted" || status === "failed" || status === "expired",
            flags
          )
        : made
      if (last.status === "failed") return yield* failure(`Not restored: ${last.failure?.detail ?? ""}`)
      if (asJson) return yield* json(last)
      yield* say(
        flags.wait
          ? "The database is back; its address and its password are as they were"
          : `It goes on as the branch ${made.name}`
      )
    })
).pipe(Command.withDescription("Put the database back to a backup or a moment"))

/** Also a subcommand of `svc database`. */
export const recoveryPoints = command("recovery-points", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const points = yield* call(client.asMember.databases.listRecoveryPoints(yield* at))
    if (asJson) return yield* json(points)
    const [newest] = points.backups
    yield* out(
      facts([
        ...points.windows.map(({ from, to }): [string, string] => ["Any moment", `${from} to ${to}`]),
        ...(points.windows.length === 0 ? [["Any moment", "none yet"] as [string, string]] : []),
        ["Backups", String(points.backups.length)],
        ["Newest", newest?.finishedAt ?? "none yet"],
        ["Last proven", points.lastProvenAt ?? "never"],
        ["Archiving", points.archiving.ok ? "works" : (points.archiving.message ?? "does not work")]
      ])
    )
  })
).pipe(Command.withDescription("Show what of the database can be restored"))

export const backups = Command.make("backups").pipe(
  Command.withDescription("Backups of the database of an environment"),
  Command.withSubcommands([ls, create, restore])
)
