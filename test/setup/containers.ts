/**
 * A container engine and a registry for tests: a Podman service with folders of its own, and a password-protected
 * registry on loopback that holds an image made of one static program, without any network.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as http from "node:http"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { installPackage } from "#src/infra/host/setup.ts"
import { fromTemplate } from "./new-data.ts"
import { until } from "./wait.ts"

const packages = [
  ["podman", "/usr/bin/podman"],
  ["runc", "/usr/sbin/runc"],
  ["conmon", "/usr/bin/conmon"],
  ["containernetworking-plugins", "/usr/lib/cni/bridge"],
  ["iptables", "/usr/sbin/iptables"],
  ["iproute2", "/usr/bin/ip"],
  ["python3", "/usr/bin/python3"],
  ["busybox-static", "/bin/busybox"],
  ["docker-registry", "/usr/bin/docker-registry"]
] as const

export const setUpContainers = (say: (line: string) => void): void => {
  const lacking = packages.filter(([, proof]) => !fs.existsSync(proof)).map(([name]) => name)
  if (lacking.length === 0) return
  say(`Installing ${lacking.join(", ")} (needed by the tests of executions) ...`)
  if (!lacking.every((name) => installPackage(name)))
    say(`The tests of executions will fail. To get what they need: apt-get install -y ${lacking.join(" ")}`)
}

export const registryUser = "puller"
export const registryPassword = "pull-Pässword-4711"
/** bcrypt, as docker-registry wants it; Debian's Python makes one with crypt.crypt and METHOD_BLOWFISH. */
const passwordDigest = "$2y$10$mL5sxQz/80cwySJ2VdDZyORg3OOYUCQxxsghUv6t2siQResL071xK"

export interface Engine {
  readonly folder: string
  readonly socket: string
  /** `127.0.0.1:port` */
  readonly registry: string
  /** An image that only its user may fetch. */
  readonly image: string
  /** The registry without a password, with the same image. */
  readonly openRegistry: string
  readonly openImage: string
  /** Ends the Podman service at once; containers go on. */
  readonly kill: () => Promise<void>
  /** With another default runtime, if one is named. */
  readonly restart: (runtime?: string) => Promise<void>
  readonly podman: (...args: ReadonlyArray<string>) => string
  /** A second runtime of this engine, by its name there, and the file that tells each time it was called. */
  readonly sandbox: { readonly name: string; readonly calls: string }
}

const startRegistry = async (folder: string, name: string, secured: boolean) => {
  const config = path.join(folder, `${name}.yml`)
  const users = path.join(folder, `${name}.htpasswd`)
  const log = path.join(folder, `${name}.log`)
  if (secured) fs.writeFileSync(users, `${registryUser}:${passwordDigest}\n`)
  // A port that it chooses and tells: one that is chosen here, somebody else may take before it does.
  fs.writeFileSync(
    config,
    `version: 0.1
log: { level: info, accesslog: { disabled: true } }
storage: { filesystem: { rootdirectory: ${path.join(folder, "registry")} } }
http: { addr: "127.0.0.1:0" }
${secured ? `auth: { htpasswd: { realm: test, path: ${users} } }` : ""}
`
  )
  const out = fs.openSync(log, "a")
  const child = spawn("docker-registry", ["serve", config], { stdio: ["ignore", out, out] })
  fs.closeSync(out)
  const port = () => /listening on 127\.0\.0\.1:(\d+)/.exec(fs.readFileSync(log, "utf8"))?.[1]
  await until("the registry answers", async () => {
    const at = port()
    return at !== undefined && (await fetch(`http://127.0.0.1:${at}/v2/`)).status < 500
  })
  return { host: `127.0.0.1:${port()}`, child }
}

const serve = (
  program: readonly [string, ...ReadonlyArray<string>],
  args: ReadonlyArray<string>,
  socket: string,
  env: NodeJS.ProcessEnv,
  log: string
) => {
  const out = fs.openSync(log, "a")
  const [command, ...before] = program
  // What watches containers leaves files where the service was started.
  const child = spawn(command, [...before, ...args, "system", "service", "-t", "0", `unix://${socket}`], {
    stdio: ["ignore", out, out],
    cwd: path.dirname(socket),
    env
  })
  fs.closeSync(out)
  return child
}

/** A socket may be there before anybody listens. */
const answersAt = (socketPath: string) =>
  new Promise<boolean>((resolve) =>
    http
      .get({ socketPath, path: "/_ping" }, (response) => {
        response.resume()
        resolve(response.statusCode === 200)
      })
      .once("error", () => resolve(false))
  )

/** Where somebody has mounted something in this folder, the innermost first. */
const mountsIn = (folder: string) =>
  fs
    .readFileSync("/proc/mounts", "utf8")
    .split("\n")
    .flatMap((line) => line.split(" ")[1] ?? [])
    .filter((place) => place.startsWith(`${folder}/`))
    .reverse()

const ended = (child: ChildProcess) =>
  child.exitCode !== null || child.signalCode !== null
    ? Promise.resolve()
    : new Promise<void>((resolve) => child.once("exit", () => resolve()))

/**
 * `userRange`: the engine has these user ids to give to containers, as subuid(5) has them. It sees a file of its own in place of the machine's, so that
 * it serves in a mount namespace, in which its commands run as well.
 */
export const engineWith = (userRange?: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-pod-"))
      const socket = path.join(folder, "podman.sock")
      const [closed, open] = await Promise.all([
        startRegistry(folder, "closed", true),
        startRegistry(folder, "open", false)
      ])
      fs.writeFileSync(
        path.join(folder, "registries.conf"),
        [closed, open].map(({ host }) => `[[registry]]\nlocation = "${host}"\ninsecure = true\n`).join("\n")
      )
      fs.writeFileSync(path.join(folder, "no-auth.json"), "{}")
      const sandbox = { name: "svc-sandbox", calls: path.join(folder, "sandbox.calls") }
      const sandboxProgram = path.join(folder, "sandbox")
      fs.writeFileSync(sandboxProgram, `#!/bin/sh\necho "$@" >> ${sandbox.calls}\nexec runc "$@"\n`, {
        mode: 0o755
      })
      fs.writeFileSync(
        path.join(folder, "containers.conf"),
        `[engine.runtimes]\n${sandbox.name} = ["${sandboxProgram}"]\n`
      )
      // The other one is Podman's default, and needs the second version of control groups.
      const hasOther = fs.existsSync("/sys/fs/cgroup/cgroup.controllers") && fs.existsSync("/usr/bin/crun")
      const runtime = hasOther ? [] : ["--runtime", "runc"]
      const args = [
        ...["--root", path.join(folder, "root"), "--runroot", path.join(folder, "run")],
        ...["--tmpdir", path.join(folder, "tmp"), "--network-config-dir", path.join(folder, "net")],
        ...["--events-backend", "file", ...runtime]
      ]
      const env = {
        ...process.env,
        CONTAINERS_REGISTRIES_CONF: path.join(folder, "registries.conf"),
        CONTAINERS_CONF: path.join(folder, "containers.conf"),
        REGISTRY_AUTH_FILE: path.join(folder, "no-auth.json")
      }
      const range = path.join(folder, "subuid")
      if (userRange !== undefined) fs.writeFileSync(range, `containers:${userRange}\n`)
      const own = `mount --bind ${range} /etc/subuid && mount --bind ${range} /etc/subgid && exec podman "$@"`
      const program =
        userRange !== undefined
          ? (["unshare", "-m", "sh", "-c", own, "podman"] as const)
          : (["podman"] as const)
      const podman = (...more: ReadonlyArray<string>) => {
        const [command, ...before] =
          userRange !== undefined ? ["nsenter", `--mount=/proc/${service.pid}/ns/mnt`, "podman"] : ["podman"]
        const done = spawnSync(command ?? "", [...before, ...args, ...more], {
          cwd: folder,
          encoding: "utf8",
          env,
          timeout: 300_000
        })
        if (done.status !== 0) throw new Error(`podman ${more.join(" ")}: ${done.stderr}`)
        return done.stdout.trim()
      }
      const log = path.join(folder, "podman.log")
      let service = serve(program, args, socket, env, log)
      const answers = () => until("the engine answers", () => answersAt(socket))
      await answers()
      const openImage = `${open.host}/test/box:1`
      // Both registries serve the files of this folder. To build an image takes seconds.
      fromTemplate("registry", path.join(folder, "registry"), () => {
        const context = path.join(folder, "image")
        fs.mkdirSync(context)
        fs.copyFileSync("/bin/busybox", path.join(context, "busybox"))
        fs.writeFileSync(
          path.join(context, "Dockerfile"),
          'FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\nCMD ["/bin/sh"]\n'
        )
        podman("build", "-q", "-t", openImage, context)
        podman("push", "-q", openImage)
        podman("rmi", "-f", openImage)
      })
      const engine: Engine = {
        folder,
        socket,
        registry: closed.host,
        image: `${closed.host}/test/box:1`,
        openRegistry: open.host,
        openImage,
        kill: async () => {
          service.kill("SIGKILL")
          await ended(service)
          fs.rmSync(socket, { force: true })
        },
        restart: async (other) => {
          service = serve(
            program,
            other === undefined ? args : [...args, "--runtime", other],
            socket,
            env,
            log
          )
          await answers()
        },
        podman,
        sandbox
      }
      const close = async () => {
        try {
          podman("rm", "-f", "-a", "-t", "0")
          podman("network", "prune", "-f")
        } catch {
          // What cannot be removed is gone with its folder.
        }
        for (const child of [service, closed.child, open.child]) {
          child.kill("SIGKILL")
          await ended(child)
        }
        // What watches a container cleans up after its end, and may mount the storage once more.
        await until("its folder is gone", () => {
          for (const place of mountsIn(folder)) spawnSync("umount", ["-l", place], { stdio: "ignore" })
          fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
          return true
        })
      }
      return { engine, close }
    }),
    ({ close }) => Effect.promise(close)
  ).pipe(Effect.map(({ engine }) => engine))

export const containerEngine = engineWith()
export const containerEngineWithUserRange = engineWith("2147483648:1073741824")

export const sh = (script: string): ReadonlyArray<string> => ["/bin/sh", "-c", script]
