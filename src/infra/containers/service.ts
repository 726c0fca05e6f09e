/**
 * Which container engine there is: the one that settings name, one whose socket is in a usual place, or a Podman of our
 * own. That one keeps images and containers in the data folder and its running state where a restart of the machine
 * clears it; it is started detached, outlives the control plane and is found again by its socket.
 */
import { spawn, spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type { Host } from "../host/Host.ts"
import { helperEnvironment } from "../host/helper-environment.ts"
import { endedAs } from "../host/oom-score.ts"
import { processesNaming } from "../host/processes-naming.ts"
import { ContainerError } from "./error.ts"

export interface EnginePlace {
  readonly socket: string
  /** Present when we start the engine ourselves. */
  readonly own?: { readonly program: string }
}

/** An empty or a relative path counts as none (XDG Base Directory Specification). */
const runtimeDir = (): string | undefined => {
  const dir = process.env["XDG_RUNTIME_DIR"] ?? ""
  return path.isAbsolute(dir) ? dir : undefined
}

const usual = () => {
  const own = runtimeDir()
  return [
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    ...(own === undefined ? [] : [path.join(own, "docker.sock"), path.join(own, "podman/podman.sock")])
  ]
}

export const missing = new ContainerError({
  reason: "HostDependencyMissing",
  message:
    "There is no container engine on this host. To get one: apt-get install -y --no-install-recommends podman runc conmon containernetworking-plugins iptables (or name its socket in SVC_CONTAINER_SOCKET)"
})

/** None: there is no engine here. */
export const findEngine = Effect.fnUntraced(function* (
  host: Host["Service"],
  configured: string | undefined
) {
  if (configured === "none") return Option.none<EnginePlace>()
  if (configured !== undefined) {
    if (!/^(unix:\/\/)?\//.test(configured))
      return yield* new ContainerError({
        reason: "HostDependencyMissing",
        message:
          "SVC_CONTAINER_SOCKET (or DOCKER_HOST) must be the path of a Unix socket; engines over a network are not supported"
      })
    return Option.some<EnginePlace>({ socket: configured.replace(/^unix:\/\//, "") })
  }
  const own = path.join(host.socketDir, "podman.sock")
  const found = usual().find((socket) => fs.existsSync(socket))
  if (found !== undefined && !fs.existsSync(own)) return Option.some<EnginePlace>({ socket: found })
  const program = yield* host.which("podman")
  return Option.map(program, (program): EnginePlace => ({ socket: own, own: { program } }))
})

const folders = (host: Host["Service"]) => {
  const storage = path.join(host.dataDir, "containers")
  const name = `svc-${createHash("sha256").update(host.dataDir).digest("hex").slice(0, 12)}`
  // Podman tells by this folder whether the machine was started anew, and its paths have a bound.
  const base = process.getuid?.() === 0 ? "/run" : (runtimeDir() ?? os.tmpdir())
  return { storage, running: path.join(base, name), pidFile: path.join(storage, "podman.pid") }
}

/** What Podman must be told on this host. crun needs the second version of control groups. */
const quirks = Effect.fnUntraced(function* (host: Host["Service"]) {
  const unified = fs.existsSync("/sys/fs/cgroup/cgroup.controllers")
  const crun = Option.isSome(yield* host.which("crun"))
  const runc = Option.isSome(yield* host.which("runc"))
  const systemd = fs.existsSync("/run/systemd/system")
  return [
    ...(runc && !(crun && unified) ? ["--runtime", "runc"] : []),
    ...(systemd ? [] : ["--cgroup-manager", "cgroupfs", "--events-backend", "file"])
  ]
})

/** Starts our own Podman. Of several processes that do, one starts it and the others fail and look again. */
export const startOwn = Effect.fnUntraced(function* (
  host: Host["Service"],
  { socket, own }: EnginePlace & { readonly own: { readonly program: string } }
) {
  const { storage, running, pidFile } = folders(host)
  const more = yield* quirks(host)
  yield* Effect.try({
    try: () => {
      fs.mkdirSync(storage, { recursive: true, mode: 0o711 })
      fs.mkdirSync(running, { recursive: true, mode: 0o700 })
      const lock = `${pidFile}.lock`
      if (fs.existsSync(lock) && Date.now() - fs.statSync(lock).mtimeMs > 20_000) fs.rmSync(lock)
      const held = fs.openSync(lock, "wx")
      const log = fs.openSync(path.join(storage, "podman.log"), "a", 0o600)
      try {
        const child = spawn(
          own.program,
          [
            ...["--root", path.join(storage, "storage"), "--runroot", path.join(running, "run")],
            ...[
              "--tmpdir",
              path.join(running, "tmp"),
              "--network-config-dir",
              path.join(storage, "networks")
            ],
            ...more,
            ...["system", "service", "-t", "0", `unix://${socket}`]
          ],
          { cwd: storage, detached: true, stdio: ["ignore", log, log], env: helperEnvironment() }
        )
        child.once("error", () => {})
        child.unref()
        if (child.pid !== undefined) {
          fs.writeFileSync(pidFile, String(child.pid), { mode: 0o600 })
          // What tenants run in containers must not be as late for the kernel as this process.
          endedAs(0, child.pid)
        }
      } finally {
        fs.closeSync(log)
        fs.closeSync(held)
        fs.rmSync(lock, { force: true })
      }
    },
    catch: (cause) =>
      new ContainerError({
        reason: "Unreachable",
        message: `The container engine cannot be started: ${cause instanceof Error ? cause.message : String(cause)}`,
        cause
      })
  })
})

/** Whether a process of ours serves the socket, or is about to. */
export const ownIsRunning = (host: Host["Service"], socket: string): Effect.Effect<boolean> => {
  const { pidFile } = folders(host)
  return Effect.suspend(() => {
    const pid = fs.existsSync(pidFile) ? Number(fs.readFileSync(pidFile, "utf8")) : 0
    return pid > 1 ? host.isRunning(pid, socket) : Effect.succeed(false)
  })
}

/** Whether a process works on the storage. What watches a container cleans up after its end, beside the service. */
const isInUse = (root: string) => Effect.map(processesNaming(root), (found) => found.length > 0)

/** `forGood`: also lets go of the mount that Podman leaves on its storage, so that the folder can be removed. */
export const stopOwn = Effect.fnUntraced(function* (host: Host["Service"], socket: string, forGood: boolean) {
  const { storage, pidFile, running } = folders(host)
  if (!(yield* ownIsRunning(host, socket))) return
  const pid = Number(fs.readFileSync(pidFile, "utf8"))
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    yield* host.kill(pid, signal)
    const gone = yield* ownIsRunning(host, socket).pipe(
      Effect.repeat({ until: (still) => !still, schedule: Schedule.spaced("50 millis") }),
      Effect.timeoutOption("5 seconds")
    )
    if (Option.isSome(gone)) break
  }
  const root = path.join(storage, "storage")
  // It would mount the storage again.
  if (forGood)
    yield* isInUse(root).pipe(
      Effect.repeat({ until: (used) => !used, schedule: Schedule.spaced("50 millis") }),
      Effect.timeoutOption("10 seconds")
    )
  yield* Effect.sync(() => {
    fs.rmSync(socket, { force: true })
    if (forGood)
      spawnSync("umount", ["-l", path.join(root, "overlay")], {
        stdio: "ignore",
        timeout: 10_000,
        env: helperEnvironment()
      })
    fs.rmSync(path.join(running, "tmp"), { recursive: true, force: true })
  }).pipe(Effect.ignore)
})
