/** `svc deploy`, `svc deployments`, `svc rollback` and `svc promote`. */
import * as Clock from "effect/Clock"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, readStdin, waiting, yes } from "#src/cli/flags.ts"
import { variable } from "#src/cli/invocation.ts"
import { json, out, say } from "#src/cli/output.ts"
import {
  commandIn,
  inEnvironment,
  inProject,
  isFolder,
  resourceCommands
} from "#src/cli/resource-commands.ts"
import { visible } from "#src/cli/visible.ts"
import type { Waiting } from "#src/cli/wait.ts"
import type { DeploymentView } from "./api.ts"

/** What it stands on is as much as all commands together. */
const uploading = Effect.promise(() => import("./upload-folder.ts"))

const id = Argument.String("id").pipe(Argument.withDescription("Id of the deployment"))

const outcome = ({ state, error, active }: DeploymentView) =>
  `${state}${active ? ", answers" : ""}${error === null ? "" : `: ${error}`}`

const read = Effect.fnUntraced(function* (projectId: string, deploymentId: string) {
  const { asMember, org } = yield* Client
  return yield* call(asMember.deployments.get({ params: { orgId: org, projectId, deploymentId } }))
})

const printLog = Effect.fnUntraced(function* (projectId: string, deploymentId: string, from: number) {
  const { asMember, org } = yield* Client
  let shown = 0
  for (let cursor: string | null = ""; cursor !== null; ) {
    const page: {
      readonly items: ReadonlyArray<{ readonly text: string }>
      readonly nextCursor: string | null
    } = yield* call(
      asMember.deployments.logs({
        params: { orgId: org, projectId, deploymentId },
        headers: {},
        query: { limit: 1000, ...(cursor === "" ? {} : { cursor }) }
      })
    )
    for (const { text } of page.items.slice(Math.max(0, from - shown)))
      yield* say(visible(text.replace(/\r?\n$/, "")))
    shown += page.items.length
    cursor = page.nextCursor
  }
  return Math.max(from, shown)
})

/** Until it has ended, or until its requests are taken, with what happens meanwhile. */
const follow = Effect.fnUntraced(function* (
  project: string,
  deployment: string,
  { timeout }: Waiting,
  isOver: (view: DeploymentView) => boolean,
  quiet: boolean
) {
  const deadline = (yield* Clock.currentTimeMillis) + timeout * 1_000
  let lines = 0
  for (;;) {
    const shown = yield* read(project, deployment)
    if (!quiet) lines = yield* printLog(project, deployment, lines)
    if (isOver(shown)) return shown
    if ((yield* Clock.currentTimeMillis) > deadline)
      return yield* failure(
        `The deployment ${deployment} goes on; svc deployments get shows it`,
        exitCodes.timeout
      )
    yield* Effect.sleep("400 millis")
  }
})

const addressOf = Effect.fnUntraced(function* (projectId: string, environment: string) {
  const { asMember, org } = yield* Client
  const all = yield* call(asMember.environments.list({ params: { orgId: org, projectId } }))
  return all.find(({ slug }) => slug === environment)?.address ?? null
})

const passwordVariable = "SVC_PULL_PASSWORD"

export const deploy = commandIn(inEnvironment)(
  "deploy",
  {
    ...waiting,
    image: Flag.String("image").pipe(
      Flag.withDescription(
        "Such as ghcr.io/you/app@sha256:... (a tag is resolved once), in place of a folder"
      ),
      Flag.optional
    ),
    git: Flag.String("git").pipe(
      Flag.withDescription(
        "Branch, tag or commit of the project's repository, in place of a folder; HEAD: the default branch"
      ),
      Flag.optional
    ),
    repo: Flag.String("repo").pipe(
      Flag.withDescription(
        "With --git: another repository, owner/name behind a git connection or the URL of a public one"
      ),
      Flag.optional
    ),
    plan: Flag.Boolean("plan").pipe(
      Flag.withDescription("Show how the folder would be built, and do nothing"),
      Flag.withDefault(false)
    ),
    message: Flag.String("message").pipe(
      Flag.withAlias("m"),
      Flag.withDescription("What is new"),
      Flag.optional
    ),
    region: Flag.String("region").pipe(Flag.withDescription("Of the first deployment"), Flag.optional),
    registry: Flag.String("registry").pipe(Flag.withDescription("Host of a private registry"), Flag.optional),
    username: Flag.String("username").pipe(Flag.withDescription("At the registry"), Flag.optional),
    passwordStdin: Flag.Boolean("password-stdin").pipe(
      Flag.withDescription(`Reads the registry's password from stdin (otherwise ${passwordVariable})`),
      Flag.withDefault(false)
    ),
    rest: Argument.String("folder").pipe(
      Argument.withDescription(
        "Folder to build and deploy (default: the one that stands for its project, else this one). With --image: program and arguments in place of the image's, after --"
      ),
      Argument.variadic()
    )
  },
  ({ client, at, where, given, json: asJson, flags }) =>
    Effect.gen(function* () {
      const image = Option.getOrUndefined(flags.image)
      const ref = Option.getOrUndefined(flags.git)
      const repo = Option.getOrUndefined(flags.repo)
      const [folder = isFolder(given.project) ? given.project : ".", ...more] =
        image === undefined ? flags.rest : []
      const elsewhere = image !== undefined || ref !== undefined
      if (
        more.length > 0 ||
        (flags.plan && elsewhere) ||
        (repo !== undefined && ref === undefined) ||
        (ref !== undefined && (image !== undefined || flags.rest.length > 0))
      )
        return yield* failure(
          "Name one folder, or an image with --image, or a commit with --git",
          exitCodes.usage
        )
      const [program, ...rest] = image === undefined ? [] : flags.rest
      const username = Option.getOrUndefined(flags.username)
      const registry = Option.getOrUndefined(flags.registry)
      const password = flags.passwordStdin ? yield* readStdin : ((yield* variable(passwordVariable)) ?? "")
      if (username !== undefined && (registry === undefined || password === ""))
        return yield* failure(
          `Say --registry as well, and give the password with --password-stdin or in ${passwordVariable}`,
          exitCodes.usage
        )
      const { lookAt, showPlan, upload } = yield* uploading
      const looked = elsewhere ? undefined : yield* lookAt(folder)
      if (looked !== undefined && flags.plan) return yield* asJson ? json(looked.plan) : showPlan(looked.plan)
      const made = yield* call(
        client.asMember.deployments.create({
          ...(yield* at),
          headers: {},
          payload: {
            ...(image === undefined ? {} : { image }),
            ...(ref === undefined ? {} : { git: { ref, ...(repo === undefined ? {} : { repo }) } }),
            ...(looked === undefined ? {} : { upload: yield* upload(where.project, looked) }),
            ...(program === undefined ? {} : { command: [program, ...rest] as const }),
            ...(Option.isSome(flags.message) ? { message: flags.message.value } : {}),
            ...(Option.isSome(flags.region) ? { region: flags.region.value } : {}),
            ...(username === undefined || registry === undefined
              ? {}
              : { imagePullCredentials: { registry, username, password } })
          }
        })
      )
      if (!flags.wait) return yield* asJson ? json(made) : out(made.id)
      yield* say(`Deployment ${made.id}`)
      const done = yield* follow(
        where.project,
        made.id,
        flags,
        ({ finishedAt }) => finishedAt !== null,
        asJson
      )
      if (asJson) yield* json(done)
      yield* say(`${done.id} ${outcome(done)}`)
      if (done.state !== "ready") return yield* failure("")
      const address = yield* addressOf(where.project, where.environment)
      if (address !== null) yield* say(address)
    })
).pipe(
  Command.withDescription("Bring a new version of the app to an environment, and wait until it answers"),
  Command.withExamples([
    { command: "svc deploy shop .", description: "This folder, built by the control plane" },
    { command: "svc deploy ./shop", description: "A folder whose svc.yaml names its project" },
    { command: "svc deploy shop --git main", description: "The newest commit of a branch" },
    { command: "svc deploy shop --image ghcr.io/you/shop@sha256:...", description: "From a registry" }
  ])
)

/** Chooses, and shows what became of that; its instances are started anew. */
const choosing = <E, R>(
  choose: Effect.Effect<DeploymentView, E, R>,
  project: string,
  flags: Waiting,
  asJson: boolean
) =>
  Effect.gen(function* () {
    const { asMember, org } = yield* Client
    const failureIn = (environment: string) =>
      Effect.map(
        call(asMember.apps.get({ params: { orgId: org, projectId: project }, query: { environment } })),
        ({ chosenDeploymentId, lastFailure }) => ({ chosenDeploymentId, lastFailure })
      )
    const made = yield* choose
    if (!flags.wait) return yield* asJson ? json(made) : out(made.id)
    // Why an earlier version was given up is told until instances of this one are started.
    let stale = (yield* failureIn(made.environment)).lastFailure
    const deadline = (yield* Clock.currentTimeMillis) + flags.timeout * 1_000
    for (;;) {
      const shown = yield* read(project, made.id)
      if (shown.active) {
        yield* asJson ? json(shown) : say(`${shown.id} ${outcome(shown)}`)
        return
      }
      const { chosenDeploymentId, lastFailure } = yield* failureIn(made.environment)
      if (chosenDeploymentId !== made.id)
        return yield* failure(`Another deployment than ${made.id} was chosen meanwhile`)
      if (lastFailure === null) stale = null
      else if (lastFailure !== stale)
        return yield* failure(`The deployment ${made.id} was given up: ${lastFailure}`)
      if ((yield* Clock.currentTimeMillis) > deadline)
        return yield* failure(
          `The deployment ${made.id} goes on; svc deployments get shows it`,
          exitCodes.timeout
        )
      yield* Effect.sleep("400 millis")
    }
  })

export const rollback = commandIn(inEnvironment)(
  "rollback",
  waiting,
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const choose = call(client.asMember.deployments.rollback({ ...(yield* at), headers: {} }))
      yield* choosing(choose, where.project, flags, asJson)
    })
).pipe(Command.withDescription("Have the ready deployment before the present one answer again"))

export const promote = commandIn(inProject)(
  "promote",
  { ...waiting, id, yes },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      yield* confirmName(`This sends the requests to the deployment ${flags.id}.`, flags.id, flags.yes)
      const choose = call(
        client.asMember.deployments.promote({ params: { ...params, deploymentId: flags.id }, headers: {} })
      )
      yield* choosing(choose, where.project, flags, asJson)
    })
).pipe(Command.withDescription("Have a deployment that was ready answer the requests"))

const { command, ls } = resourceCommands({
  scope: inEnvironment,
  noun: "deployment",
  plural: "deployments",
  argument: id,
  list: ({ asMember }, { params, query }) =>
    asMember.deployments.list({ params, query: { ...query, limit: 100 } }),
  nameOf: (deployment) => deployment.id,
  one: ({ params }, deployment) => ({ params: { ...params, deploymentId: deployment.id } })
})

const inShort = (source: DeploymentView["source"]): string => {
  switch (source.kind) {
    case "image":
      return source.image
    case "upload":
      return `upload ${source.digest.slice(0, 12)}`
    case "git":
      return `${source.ref} ${source.commit.slice(0, 12)}`
  }
}

const list = ls({
  columns: {
    ID: (deployment) => deployment.id,
    STATE: ({ state, active }) => (active ? `${state}, answers` : state),
    SOURCE: ({ source }) => inShort(source),
    MESSAGE: ({ message }) => message ?? "",
    CREATED: ({ createdAt }) => createdAt
  }
}).pipe(Command.withDescription("The last 100 deployments of an environment, newest first"))

const get = command("get", { id }, ({ where, json: asJson, flags }) =>
  Effect.gen(function* () {
    const shown = yield* read(where.project, flags.id)
    if (asJson) return yield* json(shown)
    yield* say(`${shown.id} ${outcome(shown)}`)
    yield* printLog(where.project, flags.id, 0)
  })
).pipe(Command.withDescription("Show a deployment and how it went"))

const cancel = command("cancel", { id, yes }, ({ client, at, json: asJson, flags }) =>
  Effect.gen(function* () {
    const { params } = yield* at
    yield* confirmName(`This ends the deployment ${flags.id}.`, flags.id, flags.yes)
    const shown = yield* call(
      client.asMember.deployments.cancel({ params: { ...params, deploymentId: flags.id }, headers: {} })
    )
    yield* asJson ? json(shown) : say(`${shown.id} ${outcome(shown)}`)
  })
).pipe(Command.withDescription("End a deployment that takes no requests yet"))

export const deployments = Command.make("deployments").pipe(
  Command.withDescription("Versions of the app of an environment"),
  Command.withSubcommands([list, get, cancel])
)
