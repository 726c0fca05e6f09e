/** How a folder is built, as far as its `svc.yaml` says it: what is left out is found out from the files. */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { parse } from "yaml"
import { runtimes } from "#schemas/build-plan.ts"
import { PlanRefused } from "./plan-refused.ts"

const Command = Schema.String.check(Schema.isMaxLength(4_096))
/** A folder or file below the one of `svc.yaml`. */
const Path = Schema.String.check(
  Schema.isPattern(/^(?!\/)(?!.*(^|\/)\.\.(\/|$))[^\0]{1,512}$/, { expected: "a path inside of the folder" })
)

/** YAML reads `22` and `3.12` as numbers, and `3.10` as another one. */
const Version = Schema.String.check(
  Schema.isPattern(/^[\w.*^~<>=| -]{1,64}$/, { expected: 'a version in quotes, such as "22"' })
)

export const BuildSettings = Schema.Struct({
  /** Folder of the app, for sources that hold several. */
  root: Schema.optionalKey(Path),
  /** What it is written for, where its files do not tell. */
  runtime: Schema.optionalKey(Schema.Literals(runtimes)),
  nodeVersion: Schema.optionalKey(Version),
  pythonVersion: Schema.optionalKey(Version),
  goVersion: Schema.optionalKey(Version),
  /** Commands for a POSIX shell; an empty one: nothing is run. */
  install: Schema.optionalKey(Command),
  build: Schema.optionalKey(Command),
  start: Schema.optionalKey(Command),
  /** Folder whose files are served, relative to `root`, in place of a program. */
  output: Schema.optionalKey(Path),
  /** Whether paths without a file are answered with `index.html`. */
  fallback: Schema.optionalKey(Schema.Boolean),
  /** Dockerfile by which it is built, relative to `root`. */
  dockerfile: Schema.optionalKey(Path)
})
export type BuildSettings = typeof BuildSettings.Type

/** Other keys of the file are other readers' matter. */
const File = Schema.Struct({ build: Schema.optionalKey(BuildSettings) })
const decode = Schema.decodeUnknownResult(File, { onExcessProperty: "ignore" })

export const settingsOf = (text: string | undefined): Result.Result<BuildSettings, PlanRefused> => {
  if (text === undefined) return Result.succeed({})
  const refused = (why: string) => Result.fail(new PlanRefused({ code: "bad_settings", message: why }))
  let content: unknown
  try {
    content = parse(text, { maxAliasCount: 10 })
  } catch {
    return refused("svc.yaml is no YAML")
  }
  if (content === null) return Result.succeed({})
  const decoded = decode(content)
  if (Result.isFailure(decoded)) return refused(`svc.yaml: ${decoded.failure.message.slice(0, 300)}`)
  const { start, output, dockerfile } = decoded.success.build ?? {}
  if ([start, output, dockerfile].filter((one) => one !== undefined).length > 1 && start === undefined)
    return refused("svc.yaml names both an output and a Dockerfile; keep one of them")
  if (start !== undefined && output !== undefined)
    return refused("svc.yaml names both a command to start and an output; keep one of them")
  return Result.succeed(decoded.success.build ?? {})
}
