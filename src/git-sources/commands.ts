/** `svc git-sources`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { call } from "#src/cli/client.ts"
import { waiting } from "#src/cli/flags.ts"
import { json, paint, say } from "#src/cli/output.ts"
import { inOrganization, resourceCommands } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { waitForOne } from "#src/cli/wait.ts"
import type { GitSourceView } from "./api.ts"

const name = Argument.String("name").pipe(Argument.withDescription("Name or id of the git source"))
const { command, find, on, ls, get, update, remove } = resourceCommands({
  scope: inOrganization,
  noun: "git source",
  plural: "git sources",
  argument: name,
  list: ({ asMember }, at) => asMember.gitSources.list(at),
  nameOf: (source) => source.name,
  one: ({ params }, { id }) => ({ params: { ...params, sourceId: id }, headers: {} })
})

type View = (typeof GitSourceView)["Type"]

const colours = {
  pending: "yellow",
  synced: "green",
  held: "yellow",
  failed: "red",
  suspended: "gray"
} as const satisfies Readonly<Record<View["status"], string>>
const stateOf = ({ status }: View) => paint(colours[status], status)
const short = (commit: string | null) => commit?.slice(0, 12) ?? "none"

const list = ls({
  columns: {
    NAME: (source) => source.name,
    STATUS: stateOf,
    REPOSITORY: ({ url }) => url,
    REF: ({ ref }) => ref,
    SEEN: ({ commit }) => short(commit),
    APPLIED: ({ applied }) => short(applied?.commit ?? null)
  }
})

const plannedText = ({ planned, applied }: View): string => {
  if (planned === null) return "nothing"
  const { create, update, replace, delete: gone } = planned.summary
  const what = `${create} to create, ${update} to update, ${replace} to replace, ${gone} to delete`
  const isApplied = applied?.planId === planned.planId
  return `${what} at ${short(planned.commit)}${isApplied ? ", applied" : `; svc apply --plan ${planned.planId}`}`
}

const show = get((source) => [
  ["Name", source.name],
  ["Id", source.id],
  ["Repository", source.url],
  ["Connection", source.connection ?? "none"],
  ["Ref", source.ref],
  ["Path", source.path ?? "what svc.yaml names, else svc.manifest.yaml"],
  ["Looked at", `every ${source.intervalSeconds} s, last ${source.lookedAt ?? "never"}`],
  ["Applies", source.reviewed ? "only what a merged pull request has shown" : "what the ref says"],
  ["Deletes", source.prune ? "what a present list no longer names" : "nothing"],
  ["Status", stateOf(source)],
  ["Seen", source.commit ?? "nothing yet"],
  ["Planned", plannedText(source)],
  ...(source.applied?.planId === source.planned?.planId
    ? []
    : (source.planned?.changes ?? []).map(
        ({ address, action, role }) =>
          ["", `${action} ${address}${role === "owner" ? " (owner)" : ""}`] as const
      )),
  ["Applied", source.applied === null ? "nothing yet" : `${source.applied.commit} at ${source.applied.at}`],
  [
    "Drift",
    source.drift === null ? "none seen" : `${source.drift.addresses.join(", ")} at ${source.drift.at}`
  ],
  ["Fault", source.fault === null ? "none" : `${source.fault.message} (${source.fault.code})`],
  ...(source.fault?.errors ?? []).map(
    ({ pointer, message, line, column }) =>
      ["", `${line === undefined ? "" : `${line}:${column ?? 1} `}${pointer}: ${message}`] as const
  )
])

const details = {
  connection: Flag.String("connection").pipe(
    Flag.withDescription("Id of the git connection whose credential is used"),
    Flag.optional
  ),
  ref: Flag.String("ref").pipe(Flag.withDescription("Branch, tag or commit (default main)"), Flag.optional),
  path: Flag.String("path").pipe(
    Flag.withDescription(
      "File of the manifest in the repository (default: what svc.yaml there names, else svc.manifest.yaml)"
    ),
    Flag.optional
  ),
  intervalSeconds: Flag.Int("interval").pipe(
    Flag.withDescription("Seconds between looks without being told of a change (default 300)"),
    Flag.optional
  ),
  reviewed: Flag.Boolean("reviewed").pipe(
    Flag.withDescription(
      "Apply only what a merged pull request has shown as its plan; --no-reviewed: what is there"
    ),
    Flag.optional
  ),
  prune: Flag.Boolean("prune").pipe(
    Flag.withDescription("Delete what a present list no longer names; --no-prune keeps it"),
    Flag.optional
  )
}

const create = command(
  "create",
  { ...waiting, name: Argument.String("name"), url: Argument.String("url"), details },
  (request) =>
    Effect.gen(function* () {
      const { client, at, json: asJson, flags } = request
      const payload = { name: flags.name, url: flags.url, ...given(flags.details) }
      const made = yield* call(client.asMember.gitSources.create({ ...(yield* at), headers: {}, payload }))
      if (flags.wait) yield* waitForOne(made.id, flags)
      const { item } = yield* find(made.id, request)
      yield* asJson ? json(item) : say(`${item.name} is ${stateOf(item)} at ${short(item.commit)}`)
    })
).pipe(
  Command.withDescription("Keep the organization what a manifest in a repository says"),
  Command.withExamples([
    {
      command: "svc git-sources create platform https://git.example.com/you/platform.git --ref main",
      description: "Applies svc.manifest.yaml of the branch main now and after each change"
    }
  ])
)

const change = update({
  settings: {
    url: Flag.String("url").pipe(Flag.withDescription("Another repository"), Flag.optional),
    ...details
  },
  waits: true,
  payload: (settings) => Effect.succeed(settings),
  send: ({ asMember }, request) => asMember.gitSources.update(request),
  changed: ({ body }) => body
}).pipe(Command.withDescription("Change a git source; it then has the rights of who changed it"))

const suspension = <const Word extends string>(word: Word, suspended: boolean) =>
  on(word, {}, ({ name, one }, { client, json: asJson }) =>
    Effect.gen(function* () {
      const { body } = yield* call(client.asMember.gitSources.update({ ...one, payload: { suspended } }))
      yield* asJson ? json(body) : say(`${name} is ${suspended ? "suspended" : "resumed"}`)
    })
  )
const suspend = suspension("suspend", true).pipe(
  Command.withDescription("Neither look at the repository nor apply anything")
)
const resume = suspension("resume", false).pipe(Command.withDescription("Look and apply again"))

const sync = on("sync", {}, ({ name, one }, { client, json: asJson }) =>
  Effect.gen(function* () {
    const source = yield* call(client.asMember.gitSources.sync(one))
    yield* asJson
      ? json(source)
      : say(`${name} is looked at now; svc git-sources get ${name} shows what came of it`)
  })
).pipe(Command.withDescription("Look at the repository now, and apply what is there"))

const approve = on(
  "approve",
  {
    number: Argument.Int("pull-request").pipe(Argument.withDescription("Number of the pull request")),
    commit: Flag.String("commit").pipe(Flag.withDescription("Full id of the commit that was looked at"))
  },
  ({ name, one }, { client, json: asJson, flags: { number, commit } }) =>
    Effect.gen(function* () {
      const payload = { pullRequest: number, commit }
      const source = yield* call(client.asMember.gitSources.approve({ ...one, payload }))
      yield* asJson
        ? json(source)
        : say(`pull request #${number} shows what merging ${commit.slice(0, 12)} makes of ${name}`)
    })
).pipe(Command.withDescription("Let this commit of a fork be planned, so that its pull request shows that"))

const rm = remove({
  warning: (name) => `This deletes the git source "${name}"; what it applied stays.`,
  send: ({ asMember }, one) => asMember.gitSources.delete(one),
  address: ({ name }) => `GitSource/${name}`
}).pipe(Command.withDescription("Delete a git source; what it applied stays"))

export const gitSources = Command.make("git-sources").pipe(
  Command.withDescription("Keep the organization what a manifest in a git repository says"),
  Command.withSubcommands([list, show, create, change, sync, approve, suspend, resume, rm])
)
