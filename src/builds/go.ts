/** Projects of Go: which of their packages is the program. */
import * as Result from "effect/Result"
import type { SourceFacts } from "./facts.ts"
import { PlanRefused } from "./plan-refused.ts"

/** Beside the files, under a name that no package has. */
const program = ".svc-app"
export const startOfGo = `exec ./${program}`

const isSource = (name: string) => name.endsWith(".go") && !name.endsWith("_test.go")

/** The package of the folder itself, or the only one below `cmd`. */
export const buildOfGo = (
  { folders }: SourceFacts,
  inside: (name: string) => string
): Result.Result<string, PlanRefused> => {
  const hasSource = (folder: string) => [...(folders.get(folder) ?? [])].some(isSource)
  const commands = [...(folders.get(inside("cmd")) ?? [])].filter((name) => hasSource(inside(`cmd/${name}`)))
  const [only, ...more] = commands
  const hasMain = folders.get(inside(""))?.has("main.go") === true
  const isOwn = hasMain || (only === undefined && hasSource(inside("")))
  if (!isOwn && (only === undefined || more.length > 0))
    return Result.fail(
      new PlanRefused({
        code: "no_start_command",
        message:
          more.length > 0
            ? `There are several programs below cmd (${commands.join(", ").slice(0, 200)}); name build and start in svc.yaml`
            : "There is neither a main.go nor a program below cmd"
      })
    )
  const place = isOwn ? "." : `'./cmd/${only?.replaceAll("'", "'\\''")}'`
  return Result.succeed(`go build -trimpath -o ${program} ${place}`)
}

/** The version of the language that go.mod names, which later ones can build (Go Toolchains). */
export const requiredGo = (text: string | undefined): string | undefined => {
  const version = /^go\s+([0-9.]+)/m.exec(text ?? "")?.[1]
  return version === undefined ? undefined : `>=${version}`
}
