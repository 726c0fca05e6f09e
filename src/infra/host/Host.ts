/**
 * The machine that managed servers run on: where their files are, as whom they run, which ports they hold.
 *
 * Servers are started detached, in a session of their own, so that they outlive the control plane, and within the
 * limits of their size. A control
 * plane that runs as root starts them as an unprivileged user (Postgres refuses root, and a cache has no
 * business being root).
 */
import { spawn as spawnProcess } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { AppConfig } from "#src/config.ts"
import { codeOf } from "../error-code.ts"
import { HostError, hostError } from "./error.ts"
import { launched, type RunAs } from "./launch.ts"
import { type Holding, makeHolding } from "./server-holding.ts"
import type { ServerLimits } from "./server-limits.ts"

export { HostError, hostError }

export interface SpawnOptions {
  readonly command: string
  readonly args: ReadonlyArray<string>
  readonly cwd: string
  readonly env?: Readonly<Record<string, string>>
  /** File that gets stdout and stderr, appended. */
  readonly logFile: string
  /** What it may take of the machine, as the server of this name. */
  readonly limits?: { readonly name: string; readonly limits: ServerLimits }
  /** How early the kernel ends it; below 0 only where this process may say so. */
  readonly oomScore?: number
}

export interface RunResult {
  readonly code: number
  readonly output: string
}

/**
 * A program is told of as begun a moment before it has its command line, by which it is known, and so is each that a
 * process becomes on its way to the server (`launch.ts`): on a busy machine somebody who asks in between would be told
 * that it does not run.
 */
const untilNamed = async (pid: number, command: string): Promise<number> => {
  if (process.platform === "linux") await commandLine(pid, 2_000, (line) => line.startsWith(`${command}\0`))
  return pid
}

/**
 * With what a process was started; "" when it is gone. One that becomes another program (`execve`; the master of HAProxy
 * does so once its worker runs) has no command line for a moment, and is looked at again.
 */
const commandLine = async (
  pid: number,
  tries: number,
  until: (line: string) => boolean = (line) => line !== ""
): Promise<string> => {
  const line = await fs.readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => undefined)
  if (line === undefined || until(line) || tries <= 1) return line ?? ""
  // It may have ended just as well: then nobody has read its exit yet.
  const state = /\) (\S)/.exec(await fs.readFile(`/proc/${pid}/stat`, "utf8").catch(() => ""))?.[1]
  if (state === undefined || state === "Z" || state === "X") return ""
  await new Promise((resolve) => setTimeout(resolve, 2))
  return commandLine(pid, tries - 1, until)
}

/** Where programs are looked for. The fixed ones are not in the path of every service and of every user. */
export const ProgramFolders = Context.Reference<ReadonlyArray<string>>("svc/infra/ProgramFolders", {
  defaultValue: () => [
    ...(process.env["PATH"] ?? "").split(path.delimiter),
    "/usr/local/bin",
    "/usr/bin",
    "/usr/sbin",
    "/sbin"
  ]
})

/** A Unix socket's path may have 107 bytes; the longest name below the folder takes 30 of them. */
const longestSocketDir = 75

export class Host extends Context.Service<
  Host,
  {
    readonly dataDir: string
    /** Folder for Unix sockets, short enough for their path limit. Mode 0700, owned by {@link runAs} if any. */
    readonly socketDir: string
    /** The user that servers run as; absent when the control plane itself is not root. */
    readonly runAs: RunAs | undefined
    /** Makes a folder (and its parents) that servers can use: mode 0700, owned by {@link runAs}. */
    readonly directory: (dir: string) => Effect.Effect<void, HostError>
    /** Writes a file atomically (temporary name, fsync, rename), owned by {@link runAs}. */
    readonly writeFile: (file: string, content: string, mode?: number) => Effect.Effect<void, HostError>
    /** Reads a file; none when it does not exist. */
    readonly readFile: (file: string) => Effect.Effect<Option.Option<string>, HostError>
    /** Limits of servers. */
    readonly holding: Holding
    /** Removes a file or a folder with what is in it. Nothing there is success. */
    readonly removeAll: (target: string) => Effect.Effect<void, HostError>
    /** Starts a detached process as {@link runAs} and answers its pid as soon as it runs. */
    readonly spawn: (options: SpawnOptions) => Effect.Effect<number, HostError>
    /** Runs a program as {@link runAs} to its end, with a time limit in milliseconds; output is capped at 64 KiB. */
    readonly run: (
      command: string,
      args: ReadonlyArray<string>,
      options?: { readonly cwd?: string; readonly timeoutMs?: number }
    ) => Effect.Effect<RunResult, HostError>
    /** Looks a program up in PATH and the usual system folders. */
    readonly which: (program: string) => Effect.Effect<Option.Option<string>>
    /** Whether a process with this pid lives and its command line holds `marker` (a pid alone may be reused). */
    readonly isRunning: (pid: number, marker: string) => Effect.Effect<boolean>
    /** Sends a signal; a process that is gone is success. */
    readonly kill: (pid: number, signal: NodeJS.Signals) => Effect.Effect<void>
    /**
     * Reserves a port for `owner`: the same one on every call while nobody else took it. The reservation is a
     * symbolic link that names the owner: made in one step, so that two processes never choose the same, and one
     * that is killed leaves none without an owner.
     */
    readonly reservePort: (owner: string) => Effect.Effect<number, HostError>
    /** Who holds which port of this machine. */
    readonly reservedPorts: Effect.Effect<ReadonlyMap<number, string>, HostError>
    /** Gives up every port of `owner` but `except`. */
    readonly releasePorts: (owner: string, except?: number) => Effect.Effect<void, HostError>
  }
>()("svc/infra/Host") {
  static readonly layer = Layer.effect(
    Host,
    Effect.gen(function* () {
      const config = yield* AppConfig
      const { dataDir, managedHost, managedPorts } = config
      const holding = yield* makeHolding(config)
      const portCount = managedPorts.last - managedPorts.first + 1
      const runAs = process.getuid?.() === 0 ? yield* unprivilegedUser : undefined
      const own = (target: string) =>
        runAs === undefined ? Promise.resolve() : fs.chown(target, runAs.uid, runAs.gid)
      const identity = runAs === undefined ? {} : { uid: runAs.uid, gid: runAs.gid }
      const attempt = <A>(message: string, body: () => Promise<A>) =>
        Effect.tryPromise({ try: body, catch: hostError(message) })

      const directory = (dir: string) =>
        attempt(`Cannot create the folder ${dir}`, async () => {
          const first = await fs.mkdir(dir, { recursive: true, mode: 0o700 })
          await fs.chmod(dir, 0o700)
          await own(dir)
          // Always, and not only when they are made: whoever made them may have been killed before this line.
          for (const parent of parentsBelow(dataDir, dir)) await own(parent)
          if (first === undefined || first === dir) return
          // Parents that had to be made as well must let the servers' user through.
          for (let parent = path.dirname(dir); parent.length >= first.length; parent = path.dirname(parent))
            await own(parent)
        })

      const folders = yield* ProgramFolders
      const find = (program: string) => Effect.promise(() => which(program, folders))
      const setpriv = Option.getOrUndefined(yield* find("setpriv"))
      const spawn = Effect.fnUntraced(function* (options: SpawnOptions) {
        const joins =
          options.limits === undefined ? [] : yield* holding.make(options.limits.name, options.limits.limits)
        const { oomScore } = options
        const { command, args, identity } = launched(
          { ...options, joins, ...(oomScore === undefined ? {} : { oomScore }) },
          runAs,
          setpriv
        )
        return yield* attempt(`Cannot start ${options.command}`, async () => {
          const log = await fs.open(options.logFile, "a", 0o600)
          try {
            await own(options.logFile)
            return await new Promise<number>((resolve, reject) => {
              const child = spawnProcess(command, [...args], {
                cwd: options.cwd,
                detached: true,
                stdio: ["ignore", log.fd, log.fd],
                env: { PATH: process.env["PATH"] ?? "", LANG: "C.UTF-8", ...options.env },
                ...identity
              })
              child.once("error", reject)
              child.once("spawn", () => {
                child.unref()
                resolve(child.pid!)
              })
            }).then((pid) => untilNamed(pid, options.command))
          } finally {
            await log.close()
          }
        })
      })

      yield* directory(dataDir)
      const inside = path.join(dataDir, "run")
      const socketDir =
        Buffer.byteLength(inside) <= longestSocketDir
          ? inside
          : path.join(os.tmpdir(), `svc-${createHash("sha256").update(dataDir).digest("hex").slice(0, 12)}`)
      yield* directory(socketDir)
      const portsDir = path.join(dataDir, "ports")
      yield* directory(portsDir)

      const ports = attempt("Cannot read the port reservations", async () => {
        const names = (await fs.readdir(portsDir)).filter((name) => /^\d+$/.test(name))
        return new Map(
          await Promise.all(
            names.map(
              async (name) =>
                [Number(name), await fs.readlink(path.join(portsDir, name)).catch(() => "")] as const
            )
          )
        )
      })

      return Host.of({
        dataDir,
        socketDir,
        runAs,
        directory,
        writeFile: (file, content, mode = 0o600) =>
          attempt(`Cannot write ${file}`, async () => {
            const temporary = `${file}.${process.pid}.${Math.random().toString(36).slice(2)}.tmp`
            try {
              const handle = await fs.open(temporary, "wx", mode)
              try {
                await handle.writeFile(content)
                await handle.sync()
              } finally {
                await handle.close()
              }
              await own(temporary)
              await fs.rename(temporary, file)
            } catch (error) {
              // A disk that is full is not to be filled with beginnings.
              await fs.rm(temporary, { force: true }).catch(() => {})
              throw error
            }
          }),
        readFile: (file) =>
          attempt(`Cannot read ${file}`, () => fs.readFile(file, "utf8")).pipe(
            Effect.map(Option.some),
            Effect.catchIf(
              (error) => error.code === "ENOENT",
              () => Effect.succeed(Option.none<string>())
            )
          ),
        removeAll: (target) =>
          attempt(`Cannot remove ${target}`, () =>
            fs.rm(target, { recursive: true, force: true, maxRetries: 3 })
          ),
        holding,
        spawn: (options) => Effect.uninterruptible(spawn(options)),
        run: (command, args, options) =>
          Effect.callback<RunResult, HostError>((resume) => {
            const child = spawnProcess(command, [...args], {
              cwd: options?.cwd ?? dataDir,
              stdio: ["ignore", "pipe", "pipe"],
              env: { PATH: process.env["PATH"] ?? "", LANG: "C.UTF-8" },
              timeout: options?.timeoutMs ?? 60_000,
              killSignal: "SIGKILL",
              ...identity
            })
            let output = ""
            const collect = (chunk: Buffer) => {
              if (output.length < 65_536) output += chunk.toString()
            }
            child.stdout.on("data", collect)
            child.stderr.on("data", collect)
            child.once("error", (error) => resume(Effect.fail(hostError(`Cannot run ${command}`)(error))))
            child.once("close", (code, signal) =>
              resume(
                signal === null
                  ? Effect.succeed({ code: code ?? 1, output })
                  : Effect.fail(new HostError({ message: `${command} was ended by ${signal} (time limit?)` }))
              )
            )
            return Effect.sync(() => {
              child.kill("SIGKILL")
            })
          }),
        which: find,
        isRunning: (pid, marker) =>
          Effect.promise(async () => {
            try {
              process.kill(pid, 0)
            } catch (error) {
              if (codeOf(error) !== "EPERM") return false
            }
            if (process.platform !== "linux") return true
            return (await commandLine(pid, 500)).includes(marker)
          }),
        kill: (pid, signal) =>
          Effect.sync(() => {
            try {
              process.kill(pid, signal)
            } catch (error) {
              if (codeOf(error) !== "ESRCH") throw error
            }
          }),
        reservePort: Effect.fn("Host.reservePort")(function* (owner) {
          const taken = yield* ports
          for (const [port, holder] of taken) if (holder === owner) return port
          const start = createHash("sha256").update(owner).digest().readUInt32BE(0) % portCount
          for (let i = 0; i < portCount; i++) {
            const port = managedPorts.first + ((start + i) % portCount)
            if (taken.has(port) || !(yield* Effect.promise(() => isFree(managedHost, port)))) continue
            const won = yield* attempt(`Cannot reserve port ${port}`, () =>
              fs.symlink(owner, path.join(portsDir, String(port))).then(
                () => true,
                (error: NodeJS.ErrnoException) => (error.code === "EEXIST" ? false : Promise.reject(error))
              )
            )
            if (won) return port
          }
          return yield* new HostError({
            message: `Every port from ${managedPorts.first} to ${managedPorts.last} (SVC_MANAGED_PORTS) is taken; delete servers that are no longer needed`
          })
        }),
        reservedPorts: ports,
        releasePorts: (owner, except) =>
          Effect.flatMap(ports, (taken) =>
            Effect.forEach(
              [...taken].filter(([port, holder]) => holder === owner && port !== except),
              ([port]) =>
                attempt(`Cannot release port ${port}`, () =>
                  fs.rm(path.join(portsDir, String(port)), { force: true })
                ),
              { discard: true }
            )
          )
      })
    })
  )
}

/** The folders between the two. */
const parentsBelow = (base: string, dir: string): ReadonlyArray<string> => {
  const names = path.relative(base, dir).split(path.sep)
  if (names[0] === "" || names[0] === "..") return []
  return names.slice(0, -1).map((_, i) => path.join(base, ...names.slice(0, i + 1)))
}

const which = async (program: string, folders: ReadonlyArray<string>): Promise<Option.Option<string>> => {
  for (const folder of folders) {
    const candidate = path.join(folder, program)
    const found = await fs.access(candidate, fs.constants.X_OK).then(
      () => true,
      () => false
    )
    if (folder !== "" && found) return Option.some(candidate)
  }
  return Option.none()
}

const isFree = (host: string, port: number) =>
  new Promise<boolean>((resolve) => {
    const probe = net.createServer()
    probe.once("error", () => resolve(false))
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve(true)))
  })

/** The system user that managed servers run as. The set-up step of `svc up` makes it when it is missing. */
export const serverUser = "postgres"

const unprivilegedUser = Effect.tryPromise({
  try: async (): Promise<RunAs> => {
    const line = (await fs.readFile("/etc/passwd", "utf8"))
      .split("\n")
      .find((entry) => entry.startsWith(`${serverUser}:`))
    const [name, , uid, gid] = line?.split(":") ?? []
    if (name === undefined || uid === undefined || gid === undefined) throw new Error("no such user")
    return { name, uid: Number(uid), gid: Number(gid) }
  },
  catch: hostError(
    `The control plane runs as root and needs the system user "${serverUser}" for its servers (useradd --system ${serverUser})`
  )
})
