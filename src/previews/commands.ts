/** `svc previews`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, waiting, yes } from "#src/cli/flags.ts"
import { json, out, paint, say } from "#src/cli/output.ts"
import { inProject, resourceCommands } from "#src/cli/resource-commands.ts"
import { deleted } from "#src/cli/service.ts"
import { given } from "#src/cli/settings-flags.ts"
import { waitForOne } from "#src/cli/wait.ts"
import type { PreviewView } from "./api.ts"

type View = (typeof PreviewView)["Type"]

const number = Argument.Int("pull-request").pipe(Argument.withDescription("Number of the pull request"))
const { command, find, on, ls, get } = resourceCommands({
  scope: inProject,
  noun: "preview",
  plural: "previews",
  argument: Argument.String("pull-request").pipe(
    Argument.withDescription("Number of the pull request, or id of the preview")
  ),
  list: ({ asMember }, at) => asMember.previews.list(at),
  nameOf: ({ pullRequest }) => String(pullRequest),
  one: ({ params }, { id }) => ({ params: { ...params, previewId: id }, headers: {} }),
  missing: (named, place) => `There is no preview of pull request ${named} in ${place}`
})

const stateOf = ({ status, trusted }: View) =>
  `${paint(status === "open" ? "green" : status === "failed" ? "red" : "yellow", status)}${trusted ? "" : ", not approved"}`

const list = ls({
  columns: {
    "PULL REQUEST": nameText,
    STATUS: stateOf,
    COMMIT: ({ commit }) => commit.slice(0, 12),
    ENVIRONMENT: ({ environment }) => environment,
    ADDRESS: ({ address }) => address ?? "",
    EXPIRES: ({ expiresAt }) => expiresAt ?? "never"
  }
})

function nameText({ pullRequest, title }: View): string {
  return `#${pullRequest}${title === null ? "" : ` ${title}`}`
}

const show = get((preview) => [
  ["Pull request", nameText(preview)],
  ["Id", preview.id],
  ["Status", stateOf(preview)],
  ["Commit", preview.commit],
  ...(preview.fork ? [["Approved", preview.approvedCommit ?? "none of the fork's commits"] as const] : []),
  ["Environment", preview.environment],
  ["Address", preview.address ?? "none yet"],
  ["Data", preview.branchId === null ? "none" : `branch ${preview.branchId}`],
  ["Problem", preview.problem ?? "none"],
  ["Expires", preview.expiresAt ?? "when it is closed"]
])

const commit = Flag.String("commit").pipe(Flag.withDescription("Full id of the commit that it would merge"))
const settings = {
  title: Flag.String("title").pipe(Flag.withDescription("Of the pull request"), Flag.optional),
  expiresInDays: Flag.Int("expires-in").pipe(
    Flag.withDescription("Days until it is closed by itself (default 14)"),
    Flag.optional
  )
}

const create = command(
  "create",
  {
    ...waiting,
    number,
    commit,
    settings,
    fork: Flag.Boolean("fork").pipe(
      Flag.withDescription("Its commits are in somebody else's repository"),
      Flag.withDefault(false)
    ),
    database: Flag.String("database").pipe(
      Flag.withDescription(
        "ENVIRONMENT/NAME of the database that it gets a copy of, or none (default: as databaseBranch of the project says)"
      ),
      Flag.optional
    )
  },
  (request) =>
    Effect.gen(function* () {
      const { client, at, json: asJson, flags } = request
      const database = yield* databaseOf(Option.getOrUndefined(flags.database))
      const payload = {
        ...{ pullRequest: flags.number, commit: flags.commit, fork: flags.fork },
        ...given(flags.settings),
        ...(database === undefined ? {} : { database })
      }
      const made = yield* call(client.asMember.previews.create({ ...(yield* at), headers: {}, payload }))
      if (flags.wait) yield* waitForOne(made.id, flags)
      const { item } = yield* find(made.id, request)
      if (asJson) return yield* json(item)
      yield* say(`The preview is ${stateOf(item)}; deploy to the environment ${item.environment}:`)
      yield* out(item.address ?? item.environment)
    })
).pipe(
  Command.withDescription("Open the preview of a pull request"),
  Command.withExamples([
    {
      command: "svc previews create shop 12 --commit $SHA --fork",
      description: "As a workflow does it for a pull request that is opened"
    }
  ])
)

const databaseOf = Effect.fnUntraced(function* (text: string | undefined) {
  if (text === undefined) return undefined
  if (text === "none") return null
  const [sourceEnvironment, sourceDatabase, ...more] = text.split("/")
  if (sourceEnvironment === undefined || sourceDatabase === undefined || more.length > 0)
    return yield* failure("--database takes ENVIRONMENT/NAME, or none", exitCodes.usage)
  return { sourceEnvironment, sourceDatabase }
})

const update = on(
  "update",
  { settings: { commit: commit.pipe(Flag.optional), ...settings } },
  ({ one }, { client, json: asJson, flags }) =>
    Effect.gen(function* () {
      const payload = given(flags.settings)
      if (Object.keys(payload).length === 0)
        return yield* failure("Say what to change; --help lists it", exitCodes.usage)
      const { body } = yield* call(client.asMember.previews.update({ ...one, payload }))
      yield* asJson ? json(body) : say(`The preview is at ${body.commit.slice(0, 12)}, ${stateOf(body)}`)
    })
).pipe(Command.withDescription("Say what the pull request would merge now"))

const approve = on("approve", { commit }, ({ one }, { client, json: asJson, flags }) =>
  Effect.gen(function* () {
    const preview = yield* call(
      client.asMember.previews.approve({ ...one, payload: { commit: flags.commit } })
    )
    yield* asJson
      ? json(preview)
      : say(`${preview.commit.slice(0, 12)} has the secrets and data of previews now`)
  })
).pipe(Command.withDescription("Let this commit of a fork have the secrets and data that previews have"))

const close = on("close", { ...waiting, yes }, ({ item, one }, { client, where, json: asJson, flags }) =>
  Effect.gen(function* () {
    yield* confirmName(
      `This deletes the environment ${item.environment} with everything in it.`,
      item.environment,
      flags.yes
    )
    yield* call(client.asMember.previews.close(one))
    yield* deleted(item.id, `${where.project}/Preview/${item.environment}`, { ...flags, json: asJson })
  })
).pipe(Command.withDescription("Close a preview, and delete everything of it"))

export const previews = Command.make("previews").pipe(
  Command.withDescription("Previews of pull requests: an environment with an address, and perhaps data"),
  Command.withSubcommands([list, show, create, update, approve, close])
)
