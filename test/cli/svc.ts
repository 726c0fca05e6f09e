/**
 * The command line, run by a user who has nothing yet: an empty home and an empty folder. Commands run within the process
 * of the test, which takes a tenth of the time that a process of their own does; `start` and `program` begin the real
 * program.
 */
import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { Readable, Writable } from "node:stream"
import { fileURLToPath } from "node:url"
import * as Effect from "effect/Effect"
import { Invocation } from "#src/cli/invocation.ts"
import { runCommand } from "#src/cli/run-command.ts"
import { sweep } from "#test/setup/processes.ts"

export const program = fileURLToPath(new URL("../../src/cli/svc.mjs", import.meta.url))

export interface Outcome {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface RunOptions {
  readonly stdin?: string
  readonly env?: Record<string, string>
  readonly cwd?: string
}

export interface Running {
  readonly child: ChildProcess
  readonly stdout: () => string
  readonly stderr: () => string
  readonly ended: Promise<Outcome>
  /** Waits until a stream holds this. */
  readonly says: (text: string | RegExp) => Promise<void>
}

export interface User {
  /** The folder that commands run in. */
  readonly cwd: string
  readonly credentialsFile: string
  readonly env: Record<string, string>
  /** Runs a command to its end, within this process. */
  readonly svc: (args: ReadonlyArray<string>, options?: RunOptions) => Effect.Effect<Outcome>
  /** Starts the program as a process. */
  readonly start: (args: ReadonlyArray<string>, options?: RunOptions) => Running
  /** Runs the program as a process to its end. */
  readonly program: (args: ReadonlyArray<string>, options?: RunOptions) => Effect.Effect<Outcome>
  readonly signIn: (entry: Record<string, unknown>) => void
}

/** Ends what hangs; a slow machine takes its time. */
const patienceMs = 240_000

/** A stream that keeps what is written to it. */
const recorder = (isTTY: boolean) => {
  let text = ""
  const stream = new Writable({
    decodeStrings: false,
    write: (chunk, _, done) => {
      text += String(chunk)
      done()
    }
  })
  return Object.assign(stream, { isTTY, text: () => text })
}

/** What a command is started with that nothing of this process reaches, and what it wrote. */
export const recorded = (
  options: RunOptions & {
    readonly cwd: string
    readonly env: Record<string, string>
    readonly isTTY?: boolean
  }
) => {
  const { cwd, env, isTTY = false } = options
  const [stdout, stderr] = [recorder(isTTY), recorder(isTTY)]
  const stdin = Object.assign(Readable.from([options.stdin ?? ""]), { isTTY })
  const invocation: Invocation = { env, fromFolder: new Set(), cwd, stdin, stdout, stderr }
  return { invocation, stdout: stdout.text, stderr: stderr.text }
}

/** Nothing of the settings of the machine, or of the run of tests, reaches the program. */
const cleanEnv = () =>
  Object.fromEntries(
    Object.entries(process.env).filter(
      (entry): entry is [string, string] =>
        entry[1] !== undefined &&
        !/^(SVC_|CI$|NO_COLOR|FORCE_COLOR|VITEST|NODE_OPTIONS|NODE_DISABLE_COMPILE_CACHE)/.test(entry[0])
    )
  )

const patiently = <A>(args: ReadonlyArray<string>, self: Effect.Effect<A>) =>
  Effect.timeoutOrElse(self, {
    duration: patienceMs,
    orElse: () => Effect.die(new Error(`svc ${args.join(" ")} does not end`))
  })

export const newUser = Effect.acquireRelease(
  Effect.sync((): User & { readonly base: string; readonly children: ReadonlySet<ChildProcess> } => {
    const base = fs.mkdtempSync(path.join(os.tmpdir(), "svc-cli-"))
    // The servers' user walks through it.
    fs.chmodSync(base, 0o755)
    const cwd = path.join(base, "work")
    fs.mkdirSync(cwd)
    const env: Record<string, string> = { ...cleanEnv(), XDG_CONFIG_HOME: path.join(base, "config") }
    const credentialsFile = path.join(base, "config", "svc", "credentials.json")
    const children = new Set<ChildProcess>()
    const start = (args: ReadonlyArray<string>, options: RunOptions = {}): Running => {
      const child = spawn(process.execPath, [program, ...args], {
        cwd: options.cwd ?? cwd,
        env: { ...env, ...options.env },
        stdio: ["pipe", "pipe", "pipe"]
      })
      children.add(child)
      child.once("exit", () => children.delete(child))
      let [stdout, stderr] = ["", ""]
      child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()))
      child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()))
      // A program that ends without reading its input is no fault of ours.
      child.stdin.on("error", () => undefined)
      child.stdin.end(options.stdin ?? "")
      const ended = new Promise<Outcome>((resolve) =>
        child.once("close", (code) => resolve({ code, stdout, stderr }))
      )
      return {
        child,
        ended,
        stdout: () => stdout,
        stderr: () => stderr,
        says: async (text) => {
          const deadline = performance.now() + patienceMs
          const said = () =>
            typeof text === "string" ? (stdout + stderr).includes(text) : text.test(stdout + stderr)
          while (!said()) {
            const over = child.exitCode !== null || child.signalCode !== null
            // What it said last may come after its end.
            if (over) await ended
            if (!said() && (over || performance.now() > deadline))
              throw new Error(`svc ${args.join(" ")} never said "${text}", but:\n${stdout}${stderr}`)
            await new Promise((resolve) => setTimeout(resolve, 20))
          }
        }
      }
    }
    return {
      base,
      children,
      cwd,
      env,
      credentialsFile,
      start,
      svc: (args, options) =>
        patiently(
          args,
          Effect.suspend(() => {
            const run = recorded({ ...options, cwd: options?.cwd ?? cwd, env: { ...env, ...options?.env } })
            return Effect.map(
              Effect.provideService(runCommand(args), Invocation, run.invocation),
              (code): Outcome => ({ code, stdout: run.stdout(), stderr: run.stderr() })
            )
          })
        ),
      program: (args, options) =>
        patiently(
          args,
          Effect.promise(() => start(args, options).ended)
        ),
      signIn: (entry) => {
        fs.mkdirSync(path.dirname(credentialsFile), { recursive: true })
        fs.writeFileSync(credentialsFile, JSON.stringify(entry), { mode: 0o600 })
      }
    }
  }),
  ({ base, children }) =>
    Effect.promise(async () => {
      for (const child of children) child.kill("SIGKILL")
      await sweep(base)
    })
)
