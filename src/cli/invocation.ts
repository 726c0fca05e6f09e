/**
 * What a command was started with: environment, working folder and streams. By default those of this process. A program
 * that runs commands within itself provides others, so that several of them can run at the same time.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { parseEnv } from "node:util"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"

export interface Invocation {
  readonly env: Readonly<Record<string, string | undefined>>
  /** Variables of `env` that a `.env` file of the working folder set, and not the environment. */
  readonly fromFolder: ReadonlySet<string>
  /** Relative names of files begin here. */
  readonly cwd: string
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean }
  readonly stdout: NodeJS.WritableStream & { readonly isTTY?: boolean }
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean }
}

/** Streams are looked up when they are used: standard input is opened by its first look. */
const ofThisProcess: Invocation = {
  get env() {
    return process.env
  },
  fromFolder: new Set(),
  get cwd() {
    return process.cwd()
  },
  get stdin() {
    return process.stdin
  },
  get stdout() {
    return process.stdout
  },
  get stderr() {
    return process.stderr
  }
}

export const Invocation = Context.Reference<Invocation>("svc/cli/Invocation", {
  defaultValue: () => ofThisProcess
})

/** The value of an environment variable. An empty one counts as absent. */
export const variable = (name: string) =>
  Effect.map(Invocation, ({ env }) => {
    const value = env[name]
    return value === "" ? undefined : value
  })

/** Reads a file that somebody named. Fails with what the system said. */
export const readTextFile = (name: string) =>
  Effect.flatMap(Invocation, ({ cwd }) =>
    Effect.tryPromise({
      try: () => fs.readFile(path.resolve(cwd, name), "utf8"),
      catch: (cause) => (cause instanceof Error ? cause : new Error(String(cause)))
    })
  )

/**
 * The same with the settings of the folder's `.env` file where the environment does not say. Only what is ours is taken
 * over: the rest of the file belongs to the application, and could do harm here.
 */
export const withFolderSettings = Effect.gen(function* () {
  const invocation = yield* Invocation
  const text = yield* Effect.orElseSucceed(readTextFile(".env"), () => "")
  const found = Object.entries(parseEnv(text)).filter(
    ([name, value]) => name.startsWith("SVC_") && value !== undefined && invocation.env[name] === undefined
  )
  const { cwd, stdin, stdout, stderr } = invocation
  return found.length === 0
    ? invocation
    : {
        env: { ...invocation.env, ...Object.fromEntries(found) },
        fromFolder: new Set(found.map(([name]) => name)),
        cwd,
        stdin,
        stdout,
        stderr
      }
})
