/** `svc init` and `svc link`: the `svc.yaml` of a folder. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import type { BuildPlan } from "#schemas/build-plan.ts"
import { settingsFile } from "#src/builds/facts.ts"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { asJson } from "#src/cli/flags.ts"
import { Invocation } from "#src/cli/invocation.ts"
import { json, say } from "#src/cli/output.ts"
import { commandIn, inProject } from "#src/cli/resource-commands.ts"

const folder = Argument.String("folder").pipe(
  Argument.withDescription("The folder of the app (default: this one)"),
  Argument.withDefault(".")
)

/** What these stand on is as much as all commands together. */
const loadYaml = Effect.promise(() => import("yaml"))
const looking = Effect.promise(() => import("./upload-folder.ts"))

const said = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))

/** Whole or not at all; `isNew`: only where there is none. */
const write = (file: string, text: string, isNew: boolean) =>
  Effect.try({
    try: () => {
      if (isNew) return fs.writeFileSync(file, text, { flag: "wx" })
      const draft = `${file}.${process.pid}.new`
      fs.writeFileSync(draft, text)
      fs.renameSync(draft, file)
    },
    catch: (cause) => failure(`${file} cannot be written: ${said(cause)}`)
  })

const read = (file: string) =>
  Effect.try({
    try: () => (fs.existsSync(file) ? fs.readFileSync(file, "utf8") : ""),
    catch: (cause) => failure(`${file} cannot be read: ${said(cause)}`)
  })

/** What a `svc.yaml` says of a plan without changing it: what is started or served, and the steps before it as comments. */
const textOf = Effect.fnUntraced(function* (plan: BuildPlan) {
  const { Document } = yield* loadYaml
  const comments = [
    " How this folder is built and run, found out from its files. What is left out is found out anew each time.",
    ...plan.steps
      .filter(({ name }) => name !== "prune")
      .map(({ name, command }) => `   ${name}: ${command.replaceAll("\n", " ")}`)
  ]
  const build =
    plan.kind === "server"
      ? { ...(plan.root === "" || plan.root === "." ? {} : { root: plan.root }), start: plan.start }
      : {}
  const document = new Document(Object.keys(build).length === 0 ? null : { build })
  document.commentBefore = comments.join("\n")
  return Object.keys(build).length === 0
    ? `${comments.map((line) => `#${line}`).join("\n")}\n`
    : document.toString()
})

export const init = Command.make(
  "init",
  {
    folder,
    force: Flag.Boolean("force").pipe(
      Flag.withDescription("Replace a svc.yaml that is there"),
      Flag.withDefault(false)
    ),
    json: asJson
  },
  (flags) =>
    Effect.gen(function* () {
      const { cwd } = yield* Invocation
      const file = path.join(path.resolve(cwd, flags.folder), settingsFile)
      if (!flags.force && fs.existsSync(file))
        return yield* failure(`${file} is there already; --force replaces it`, exitCodes.conflict)
      // What it says itself is what is to be replaced.
      const { lookAt, showPlan } = yield* looking
      const { plan } = yield* lookAt(flags.folder, { withSettings: false })
      yield* write(file, yield* textOf(plan), !flags.force)
      if (flags.json) return yield* json({ file, plan })
      yield* say(`Wrote ${file}`)
      yield* showPlan(plan)
    })
).pipe(
  Command.withDescription("Write a svc.yaml with how the folder is built and run, as its files tell it"),
  Command.withExamples([{ command: "svc init", description: "Then svc link shop, and svc deploy . ." }])
)

export const link = commandIn(inProject)(
  "link",
  { folder },
  ({ client, at, where, json: wantsJson, flags }) =>
    Effect.gen(function* () {
      const { cwd } = yield* Invocation
      const place = yield* at
      const { slug: project } = (yield* call(client.asMember.projects.get(place))).body
      const file = path.join(path.resolve(cwd, flags.folder), settingsFile)
      const before = yield* read(file)
      const { isMap, parseDocument } = yield* loadYaml
      const document = parseDocument(before)
      const { contents } = document
      if (document.errors.length > 0 || (contents !== null && !isMap(contents)))
        return yield* failure(`${file} is no YAML that settings can be added to`)
      const values = { apiUrl: client.login.apiUrl, organization: client.org, project }
      const replaced = Object.entries(values).flatMap(([key, value]) => {
        const old: unknown = document.get(key)
        return old === undefined || old === value ? [] : [`${key} was ${String(old)}`]
      })
      for (const [key, value] of Object.entries(values)) document.set(key, value)
      yield* write(file, document.toString(), before === "" && !fs.existsSync(file))
      if (wantsJson) return yield* json({ file, ...values })
      yield* say(
        `${file} names ${client.org}/${project} at ${client.login.apiUrl} for commands in that folder`
      )
      for (const line of replaced) yield* say(line)
      if (where.project !== ".") yield* say('Commands there take "." for the project, such as svc ps .')
    })
).pipe(
  Command.withDescription("Have commands in a folder know its organization, control plane and project"),
  Command.withExamples([
    { command: "svc link shop", description: "This folder; from then on svc deploy . . and svc ps ." }
  ])
)
