/** `svc projects` and `svc environments`: what contains the others. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { PreviewData, RuntimeClass } from "#schemas/project.ts"
import { budget } from "#src/budgets/commands.ts"
import { call } from "#src/cli/client.ts"
import { project, waiting } from "#src/cli/flags.ts"
import { json, out, paint, say } from "#src/cli/output.ts"
import { inOrganization, inProject, resourceCommands } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { waitForOne } from "#src/cli/wait.ts"

const ofProjects = resourceCommands({
  scope: inOrganization,
  noun: "project",
  plural: "projects",
  argument: project,
  list: ({ asMember }, at) => asMember.projects.list(at),
  nameOf: ({ slug }) => slug,
  one: ({ params }, { id }) => ({ params: { ...params, projectId: id }, headers: {} })
})

const projectsLs = ofProjects.ls({
  columns: {
    SLUG: ({ slug }) => slug,
    NAME: ({ name }) => name,
    "RUNTIME CLASS": ({ runtimeClass }) => runtimeClass,
    CREATED: ({ createdAt }) => createdAt
  }
})

const runtimeClass = Flag.Literals("runtime-class", RuntimeClass.literals).pipe(Flag.optional)

const projectsCreate = ofProjects
  .command(
    "create",
    {
      ...waiting,
      slug: Argument.String("slug"),
      name: Flag.String("name").pipe(Flag.withDescription("For people; else the slug"), Flag.optional),
      settings: { runtimeClass }
    },
    ({ client, at, json: asJson, flags }) =>
      Effect.gen(function* () {
        const { slug } = flags
        const payload = { slug, name: Option.getOrElse(flags.name, () => slug), ...given(flags.settings) }
        const made = yield* call(client.asMember.projects.create({ ...(yield* at), headers: {}, payload }))
        if (flags.wait) yield* waitForOne(made.id, flags)
        yield* asJson
          ? json(made)
          : say(`${made.slug} ${paint("green", "is there")}, with its environments production and preview`)
      })
  )
  .pipe(Command.withDescription("Create a project with its production and preview environments"))

const projectsUpdate = ofProjects
  .update({
    settings: {
      name: Flag.String("name").pipe(Flag.withDescription("New name, for people"), Flag.optional),
      runtimeClass,
      previewData: Flag.Literals("preview-data", PreviewData.literals).pipe(
        Flag.withDescription("Whether the environment preview may hold copies of production data"),
        Flag.optional
      )
    },
    waits: false,
    payload: (settings) => Effect.succeed(settings),
    send: ({ asMember }, request) => asMember.projects.update(request),
    changed: ({ body }) => body,
    say: ({ name, slug, runtimeClass, previewData }) =>
      `"${name}" (${slug}): ${runtimeClass}, production data in previews ${previewData}`
  })
  .pipe(
    Command.withExamples([
      {
        command: "svc projects update shop --preview-data allowed",
        description: "Let branches of production databases into previews"
      }
    ])
  )

const projectsDelete = ofProjects
  .remove({
    warning: (slug) => `This deletes the project "${slug}" and everything in it, with all data.`,
    send: ({ asOwner }, one) => asOwner.projects.delete(one),
    address: ({ slug }) => `Project/${slug}`
  })
  .pipe(Command.withDescription("Delete a project and everything in it"))

export const projects = Command.make("projects").pipe(
  Command.withDescription("Projects"),
  Command.withSubcommands([projectsLs, projectsCreate, projectsUpdate, projectsDelete, budget])
)

const slug = Argument.String("environment").pipe(Argument.withDescription("Slug of the environment"))
const ofEnvironments = resourceCommands({
  scope: inProject,
  noun: "environment",
  plural: "environments",
  argument: slug,
  list: ({ asMember }, at) => asMember.environments.list(at),
  nameOf: (environment) => environment.slug,
  one: ({ params }, { id }) => ({ params: { ...params, environmentId: id }, headers: {} })
})

const environmentsLs = ofEnvironments.ls({
  columns: {
    SLUG: (environment) => environment.slug,
    ADDRESS: ({ address }) => address ?? "",
    ORIGIN: ({ origin }) => origin ?? "",
    CREATED: ({ createdAt }) => createdAt
  }
})

const environmentsCreate = ofEnvironments
  .command("create", { ...waiting, slug }, ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const payload = { slug: flags.slug }
      const made = yield* call(client.asMember.environments.create({ ...(yield* at), headers: {}, payload }))
      if (flags.wait) yield* waitForOne(made.id, flags)
      yield* asJson ? json(made) : say(`${where.project}/${made.slug} ${paint("green", "is there")}`)
    })
  )
  .pipe(Command.withDescription("Create an environment"))

const environmentsOrigin = ofEnvironments
  .on(
    "origin",
    {
      origin: Argument.String("origin").pipe(
        Argument.withDescription("Such as https://shop.example.com; `none` takes it away")
      )
    },
    ({ name, one }, { client, where, json: asJson, flags }) =>
      Effect.gen(function* () {
        const payload = { origin: flags.origin === "none" ? null : flags.origin }
        const { body } = yield* call(client.asMember.environments.update({ ...one, payload }))
        const place = `${where.project}/${name}`
        yield* asJson
          ? json(body)
          : say(body.origin === null ? `${place} has no origin now` : `${place} answers at ${body.origin}`)
      })
  )
  .pipe(Command.withDescription("Say where the app answers: cron and queue invocations go there"))

const environmentsSecret = ofEnvironments
  .on("rotate-secret", {}, ({ one }, { client, json: asJson }) =>
    Effect.gen(function* () {
      const made = yield* call(client.asMember.environments.rotateSigningSecret(one))
      yield* asJson ? json(made) : out(made.signingSecret)
    })
  )
  .pipe(
    Command.withDescription(
      "Replace the secret that cron and queue invocations are signed with, and show it once"
    )
  )

const environmentsToken = ofEnvironments
  .on("rotate-app-token", {}, ({ one }, { client, json: asJson }) =>
    Effect.gen(function* () {
      const made = yield* call(client.asMember.environments.rotateAppServiceToken(one))
      yield* asJson ? json(made) : out(made.appServiceToken)
    })
  )
  .pipe(
    Command.withDescription(
      "Replace the token that apps present to the platform's services, and show it once"
    )
  )

const environmentsDelete = ofEnvironments
  .remove({
    warning: (name, { project }) =>
      `This deletes the environment "${name}" of ${project} and everything in it, with all data.`,
    send: ({ asOwner }, one) => asOwner.environments.delete(one),
    address: (environment, { project }) => `${project}/Environment/${environment.slug}`
  })
  .pipe(Command.withDescription("Delete an environment and everything in it"))

export const environments = Command.make("environments").pipe(
  Command.withDescription("Environments of a project"),
  Command.withSubcommands([
    environmentsLs,
    environmentsCreate,
    environmentsOrigin,
    environmentsSecret,
    environmentsToken,
    environmentsDelete
  ])
)
