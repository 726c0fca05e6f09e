/**
 * Running `git` on what nobody trusts: with no configuration of this machine, over https alone, within bounds, and as a
 * group of processes that ends with whoever waits for it. A credential is in its environment, never in its arguments.
 */
import { type ChildProcess, spawn } from "node:child_process"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { codeOf } from "#src/infra/error-code.ts"
import { GitError } from "./GitError.ts"

export interface GitBounds {
  /** Bytes of a file that it writes: of a pack as of an archive. */
  readonly fileBytes: number
  /** Bytes of memory that each of its processes takes for itself. */
  readonly memoryBytes: number
  /** Seconds of a processor. */
  readonly cpuSeconds: number
  /** For one command. */
  readonly timeMs: number
}

export interface GitCommand {
  /** Absolute path of the program. */
  readonly program: string
  /** A folder of its own: its home, and where it works. */
  readonly home: string
  readonly args: ReadonlyArray<string>
  /** Configuration besides what always counts; values may be secret. */
  readonly config?: ReadonlyArray<readonly [key: string, value: string]>
  readonly env?: Readonly<Record<string, string>>
  readonly input?: string | Uint8Array
  /** Bytes that are taken of what it prints; more is a failure. */
  readonly mostBytes?: number
  readonly identity: { readonly uid?: number; readonly gid?: number }
  readonly bounds: GitBounds
}

export interface GitEnd {
  readonly code: number | undefined
  readonly signal: NodeJS.Signals | undefined
  readonly stdout: Buffer
  /** For finding out what went wrong; it may repeat what a server said, and is shown to nobody. */
  readonly stderr: string
}

const always: ReadonlyArray<readonly [key: string, value: string]> = [
  ["core.hooksPath", "/dev/null"],
  ["core.protectHFS", "true"],
  ["core.protectNTFS", "true"],
  // Larger ones pass through without being held in memory.
  ["core.bigFileThreshold", "16m"],
  ["protocol.version", "2"],
  ["http.followRedirects", "false"],
  ["http.proxy", ""],
  ["http.lowSpeedLimit", "1000"],
  ["http.lowSpeedTime", "30"],
  ["transfer.bundleURI", "false"],
  ["transfer.fsckObjects", "true"],
  // What old programs wrote and no harm comes of.
  ["fetch.fsck.zeroPaddedFilemode", "ignore"],
  ["fetch.fsck.missingSpaceBeforeDate", "ignore"],
  ["fetch.fsck.badTimezone", "ignore"],
  ["fetch.recurseSubmodules", "false"],
  // Always a pack: one file, whose size is bounded.
  ["fetch.unpackLimit", "1"],
  ["pack.threads", "1"],
  ["tar.umask", "0022"],
  ["gc.auto", "0"]
]

const environmentOf = ({ home, config = [], env = {} }: GitCommand) => {
  const all = [...always, ...config]
  const numbered = all.flatMap(([key, value], i) => [
    [`GIT_CONFIG_KEY_${i}`, key],
    [`GIT_CONFIG_VALUE_${i}`, value]
  ])
  return {
    PATH: process.env["PATH"] ?? "",
    LANG: "C",
    LC_ALL: "C",
    HOME: home,
    XDG_CONFIG_HOME: home,
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_ATTR_NOSYSTEM: "1",
    GIT_TERMINAL_PROMPT: "0",
    GIT_ASKPASS: "/bin/false",
    SSH_ASKPASS: "/bin/false",
    GIT_ALLOW_PROTOCOL: "https",
    GIT_OPTIONAL_LOCKS: "0",
    // A repository that this machine's folder happens to lie in has no say.
    GIT_CEILING_DIRECTORIES: path.dirname(home),
    GIT_CONFIG_COUNT: String(all.length),
    ...Object.fromEntries(numbered),
    ...env
  }
}

/**
 * A shell sets the bounds, then becomes git: sizes of files are in blocks of 512 bytes (ulimit, POSIX.1-2017). Memory
 * is in KiB, and counts what a process maps privately to write to (setrlimit(2), RLIMIT_DATA): an object that unfolds to
 * more ends git, not the machine; and where memory is short all the same, git goes first (proc_pid_oom_score_adj(5)). Time is
 * bounded here as well, for when the process that waits for it was killed.
 */
const bounded = `{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null
ulimit -c 0; ulimit -f "$1" && ulimit -d "$2" && ulimit -t "$3" || exit 125; seconds=$4; shift 4
if command -v timeout >/dev/null; then exec timeout -s KILL "$seconds" "$@"; fi; exec "$@"`

/** Ends it and what it has started. */
const end = (child: ChildProcess) => {
  if (child.pid === undefined) return
  try {
    process.kill(-child.pid, "SIGKILL")
  } catch (error) {
    if (codeOf(error) !== "ESRCH") throw error
  }
}

const longestComplaint = 16_384

/** Answers however it ended; fails when it cannot begin, takes too long or prints too much. */
export const runGit = (command: GitCommand): Effect.Effect<GitEnd, GitError> =>
  Effect.callback<GitEnd, GitError>((resume) => {
    const { program, home, args, input, mostBytes = 1024 * 1024, identity, bounds } = command
    const limits = [
      Math.ceil(bounds.fileBytes / 512),
      Math.ceil(bounds.memoryBytes / 1_024),
      bounds.cpuSeconds,
      Math.ceil(bounds.timeMs / 1_000) + 5
    ].map(String)
    const child = spawn("/bin/sh", ["-c", bounded, "sh", ...limits, program, ...args], {
      cwd: home,
      detached: true,
      stdio: ["pipe", "pipe", "pipe"],
      env: environmentOf(command),
      ...identity
    })
    const taken: Array<Buffer> = []
    let size = 0
    let stderr = ""
    child.stdout.on("data", (chunk: Buffer) => {
      size += chunk.length
      if (size <= mostBytes) return void taken.push(chunk)
      resume(Effect.fail(new GitError({ code: "too_large", message: "The repository has too many entries" })))
      end(child)
    })
    child.stderr.on("data", (chunk: Buffer) => {
      if (stderr.length < longestComplaint) stderr += chunk.toString()
    })
    // It may end before it has read all.
    child.stdin.on("error", () => {})
    child.stdin.end(input ?? "")
    child.once("error", (cause) =>
      resume(Effect.fail(new GitError({ code: "unavailable", message: "git cannot be started here", cause })))
    )
    child.once("close", (code, signal) =>
      resume(
        Effect.succeed({
          code: code ?? undefined,
          signal: signal ?? undefined,
          stdout: Buffer.concat(taken),
          stderr
        })
      )
    )
    return Effect.sync(() => end(child))
  }).pipe(
    Effect.timeoutOrElse({
      duration: command.bounds.timeMs,
      orElse: () =>
        new GitError({
          code: "timed_out",
          message: `The repository did not answer to the end within ${Math.round(command.bounds.timeMs / 1_000)} s`
        })
    })
  )
