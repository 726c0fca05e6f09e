/** The folder that `svc deploy` is given: how it would be built, and sending it. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type { BuildPlan } from "#schemas/build-plan.ts"
import { settingsFile } from "#src/builds/facts.ts"
import { factsOf, packFolder, sourceFiles } from "#src/builds/pack-folder.ts"
import { shortestCopy } from "#src/builds/piece.ts"
import { piecesOf } from "#src/builds/pieces.ts"
import { planOf } from "#src/builds/plan.ts"
import { Client, call, send } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { Invocation } from "#src/cli/invocation.ts"
import { out, say } from "#src/cli/output.ts"

const unreadable = (folder: string) => (cause: unknown) =>
  failure(`${folder} cannot be read: ${cause instanceof Error ? cause.message : String(cause)}`)

/** Its files, and the plan by which they are built; by the files alone without its settings. */
export const lookAt = Effect.fnUntraced(function* (named: string, { withSettings = true } = {}) {
  const { cwd } = yield* Invocation
  const folder = path.resolve(cwd, named)
  const { files, facts } = yield* Effect.try({
    try: () => {
      const files = sourceFiles(folder)
      return { files, facts: factsOf(folder, files) }
    },
    catch: unreadable(folder)
  })
  const planned = planOf(
    withSettings
      ? facts
      : { ...facts, texts: new Map([...facts.texts].filter(([name]) => name !== settingsFile)) }
  )
  if (Result.isFailure(planned))
    return yield* failure(`${planned.failure.message} (${planned.failure.code})`, exitCodes.usage)
  return { folder, files, plan: planned.success }
})

export const showPlan = Effect.fnUntraced(function* (plan: BuildPlan) {
  const runtime = plan.kind === "dockerfile" ? undefined : plan.runtime
  if (runtime !== undefined)
    yield* out(
      `runtime: ${runtime.name}${runtime.versions === null ? "" : ` ${runtime.versions} (${runtime.saidBy})`}`
    )
  for (const { name, command } of plan.steps) yield* out(`${name}: ${command}`)
  if (plan.kind === "dockerfile") {
    for (const { from, instructions } of plan.stages)
      yield* out(`stage: from ${from}, ${instructions.length} instructions`)
  } else if (plan.kind === "server") yield* out(`start: ${plan.start}`)
  else yield* out(`serve: ${plan.output}${plan.fallback ? ", index.html for all paths without a file" : ""}`)
  for (const warning of plan.warnings) yield* out(`Warning: ${warning}`)
})

const kib = (bytes: number) => `${Math.ceil(bytes / 1024)} KiB`

/** Bytes of one request: so few that a slow line brings them within the time that the API gives one. */
const partBytes = 4 * 1024 * 1024
const decodeAnswer = Schema.decodeUnknownEffect(
  Schema.Struct({
    received: Schema.Int,
    missing: Schema.Int,
    until: Schema.Int,
    entries: Schema.NullOr(Schema.Int)
  })
)

/** Sends what of it is not there yet, part by part, and answers the digest that a deployment names it by. */
export const upload = Effect.fnUntraced(function* (
  project: string,
  { folder, files }: Effect.Success<ReturnType<typeof lookAt>>
) {
  const { org, asMember } = yield* Client
  const place = yield* Effect.acquireRelease(
    Effect.try({
      try: () => fs.mkdtempSync(path.join(os.tmpdir(), "svc-deploy-")),
      catch: unreadable(os.tmpdir())
    }),
    (place) => Effect.sync(() => fs.rmSync(place, { recursive: true, force: true }))
  )
  const file = path.join(place, "source.tar")
  const digest = yield* Effect.tryPromise({
    try: (signal) => packFolder(folder, files, file, signal),
    catch: unreadable(folder)
  })
  const whole = yield* Effect.tryPromise({
    try: () => fs.openAsBlob(file, { type: "application/x-tar" }),
    catch: unreadable(file)
  })
  const { size } = whole
  const segments = ["v1", "orgs", org, "projects", project, "uploads", digest]
  const address = `/${segments.map(encodeURIComponent).join("/")}`
  const put = (from: number, to: number) =>
    Effect.flatMap(
      send("PUT", `${address}?offset=${from}&size=${size}`, whole.slice(from, to, "application/x-tar")),
      (answer) => Effect.orDie(decodeAnswer(answer))
    )
  // Nothing of it is sent first: an earlier try may have brought all of it, or a part.
  let answer = yield* put(0, 0)
  if (answer.entries === null && answer.received === 0 && size > shortestCopy) {
    const pieces = yield* Effect.tryPromise({
      try: (signal) => piecesOf(file, signal),
      catch: unreadable(file)
    })
    const [piece, ...more] = pieces ?? []
    if (piece !== undefined)
      answer = yield* call(
        asMember.deployments.comparePieces({
          params: { orgId: org, projectId: project, digest },
          payload: { pieces: [piece, ...more] }
        })
      )
  }
  if (answer.entries === null)
    yield* say(
      `Uploading ${files.length} files and folders, ${kib(answer.missing)}${answer.missing < size ? ` of ${kib(size)}` : ""}`
    )
  let stuck = 0
  while (answer.entries === null) {
    const before = answer.received
    answer = yield* put(before, Math.min(answer.until, before + partBytes))
    stuck = answer.entries === null && answer.received <= before ? stuck + 1 : 0
    if (stuck > 5) return yield* failure("The control plane does not take the source")
  }
  return digest
}, Effect.scoped)
