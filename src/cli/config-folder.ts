/** The user's folder with what the program keeps, and how its files are replaced: as a whole, for the owner alone. */
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { failure } from "./failure.ts"
import { variable } from "./invocation.ts"

export const configFolder = Effect.map(variable("XDG_CONFIG_HOME"), (home) =>
  path.join(home ?? path.join(os.homedir(), ".config"), "svc")
)

export const attempt = <A>(what: string, body: () => Promise<A>) =>
  Effect.tryPromise({
    try: body,
    catch: (cause) => failure(`${what}: ${cause instanceof Error ? cause.message : String(cause)}`)
  })

export const hasCode = (error: unknown, code: string): boolean =>
  error instanceof Error && "code" in error && error.code === code

export const readText = (file: string): Promise<string | undefined> =>
  fs.readFile(file, "utf8").catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return undefined
    throw error
  })

/**
 * Makes room for a new content of a file, of about this size, and answers what puts it there: so it is known that it can
 * be stored before it is had. The room is given back when the scope closes. One at a time: who calls holds the lock.
 */
export const replaceFile = Effect.fnUntraced(function* (file: string, size = 0) {
  const what = `Cannot store ${file}`
  const temporary = `${file}.new`
  yield* Effect.acquireRelease(
    attempt(what, async () => {
      await fs.mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
      await fs.writeFile(temporary, " ".repeat(size), { mode: 0o600, flush: true })
    }),
    () => Effect.promise(() => fs.rm(temporary, { force: true }).catch(() => undefined))
  )
  return (text: string) =>
    attempt(what, async () => {
      await fs.writeFile(temporary, text, { flush: true })
      await fs.rename(temporary, file)
    })
})
