/** `svc projects` and `svc environments`: what contains the others. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { RuntimeClass } from "#schemas/project.ts"
import { Client, call } from "./client.ts"
import { asJson, confirmName, connection, online, project, waiting, yes } from "./flags.ts"
import { json, out, paint, say, table } from "./output.ts"
import { deleted } from "./service.ts"
import { waitForOne } from "./wait.ts"

const projectsLs = Command.make("ls", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const found = yield* call(asMember.projects.list({ params: { orgId: org } }))
      if (flags.json) return yield* json(found)
      if (found.length === 0) return yield* say(`There are no projects in "${org}"`)
      yield* out(
        table(
          ["SLUG", "NAME", "RUNTIME CLASS", "CREATED"],
          found.map(({ slug, name, runtimeClass, createdAt }) => [slug, name, runtimeClass, createdAt])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List projects"))

const projectsCreate = Command.make(
  "create",
  {
    ...connection,
    ...waiting,
    json: asJson,
    slug: Argument.String("slug"),
    name: Flag.String("name").pipe(Flag.withDescription("For people; else the slug"), Flag.optional),
    runtimeClass: Flag.Literals("runtime-class", RuntimeClass.literals).pipe(Flag.optional)
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const payload = {
          slug: flags.slug,
          name: Option.getOrElse(flags.name, () => flags.slug),
          ...(Option.isSome(flags.runtimeClass) ? { runtimeClass: flags.runtimeClass.value } : {})
        }
        const made = yield* call(asMember.projects.create({ params: { orgId: org }, headers: {}, payload }))
        if (flags.wait) yield* waitForOne(made.id, flags)
        yield* flags.json
          ? json(made)
          : say(`${made.slug} ${paint("green", "is there")}, with its environments production and preview`)
      })
    )
).pipe(Command.withDescription("Create a project with its production and preview environments"))

const projectsDelete = Command.make(
  "delete",
  { ...connection, ...waiting, json: asJson, project, yes },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, asOwner, org } = yield* Client
        const params = { orgId: org, projectId: flags.project }
        const { body } = yield* call(asMember.projects.get({ params }))
        yield* confirmName(
          `This deletes the project "${body.slug}" and everything in it, with all data.`,
          body.slug,
          flags.yes
        )
        yield* call(asOwner.projects.delete({ params, headers: {} }))
        yield* deleted(body.id, `Project/${body.slug}`, flags)
      })
    )
).pipe(Command.withAlias("rm"), Command.withDescription("Delete a project and everything in it"))

export const projects = Command.make("projects").pipe(
  Command.withDescription("Projects"),
  Command.withSubcommands([projectsLs, projectsCreate, projectsDelete])
)

const slug = Argument.String("environment").pipe(Argument.withDescription("Slug of the environment"))

const environmentsLs = Command.make("ls", { ...connection, json: asJson, project }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const params = { orgId: org, projectId: flags.project }
      const found = yield* call(asMember.environments.list({ params }))
      if (flags.json) return yield* json(found)
      yield* out(
        table(
          ["SLUG", "ORIGIN", "CREATED"],
          found.map((one) => [one.slug, one.origin ?? "", one.createdAt])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List environments"))

const environmentsCreate = Command.make(
  "create",
  { ...connection, ...waiting, json: asJson, project, slug },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const params = { orgId: org, projectId: flags.project }
        const payload = { slug: flags.slug }
        const made = yield* call(asMember.environments.create({ params, headers: {}, payload }))
        if (flags.wait) yield* waitForOne(made.id, flags)
        yield* flags.json ? json(made) : say(`${flags.project}/${made.slug} ${paint("green", "is there")}`)
      })
    )
).pipe(Command.withDescription("Create an environment"))

const environmentsOrigin = Command.make(
  "origin",
  {
    ...connection,
    json: asJson,
    project,
    slug,
    origin: Argument.String("origin").pipe(
      Argument.withDescription("Such as https://shop.example.com; `none` takes it away")
    )
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { body } = yield* call(
          asMember.environments.update({
            params: { orgId: org, projectId: flags.project, environmentId: flags.slug },
            headers: {},
            payload: { origin: flags.origin === "none" ? null : flags.origin }
          })
        )
        const place = `${flags.project}/${body.slug}`
        yield* flags.json
          ? json(body)
          : say(body.origin === null ? `${place} has no origin now` : `${place} answers at ${body.origin}`)
      })
    )
).pipe(Command.withDescription("Say where the app answers: cron and queue invocations go there"))

const environmentsSecret = Command.make(
  "rotate-secret",
  { ...connection, json: asJson, project, slug },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const params = { orgId: org, projectId: flags.project, environmentId: flags.slug }
        const made = yield* call(asMember.environments.rotateSigningSecret({ params, headers: {} }))
        yield* flags.json ? json(made) : out(made.signingSecret)
      })
    )
).pipe(
  Command.withDescription(
    "Replace the secret that cron and queue invocations are signed with, and show it once"
  )
)

const environmentsDelete = Command.make(
  "delete",
  { ...connection, ...waiting, json: asJson, project, slug, yes },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, asOwner, org } = yield* Client
        const params = { orgId: org, projectId: flags.project }
        const found = (yield* call(asMember.environments.list({ params }))).find(
          (one) => one.slug === flags.slug || one.id === flags.slug
        )
        const name = found?.slug ?? flags.slug
        yield* confirmName(
          `This deletes the environment "${name}" of ${flags.project} and everything in it, with all data.`,
          name,
          flags.yes
        )
        yield* call(asOwner.environments.delete({ params: { ...params, environmentId: flags.slug } }))
        if (found !== undefined) yield* deleted(found.id, `${flags.project}/Environment/${name}`, flags)
      })
    )
).pipe(Command.withAlias("rm"), Command.withDescription("Delete an environment and everything in it"))

export const environments = Command.make("environments").pipe(
  Command.withDescription("Environments of a project"),
  Command.withSubcommands([
    environmentsLs,
    environmentsCreate,
    environmentsOrigin,
    environmentsSecret,
    environmentsDelete
  ])
)
