/**
 * Makes the host ready, where it may: installs missing Debian packages and makes the system user that servers run
 * as. Where it may not it says the one line that would, and goes on: what needs the missing part reports it.
 */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import { dependencies } from "./dependencies.ts"
import { serverUser } from "./Host.ts"
import { helperEnvironment } from "./helper-environment.ts"

const isRoot = process.getuid?.() === 0

const run = (command: string, args: ReadonlyArray<string>, seconds: number): boolean =>
  spawnSync(command, [...args], {
    stdio: ["ignore", "ignore", "ignore"],
    timeout: seconds * 1000,
    env: helperEnvironment({ DEBIAN_FRONTEND: "noninteractive" })
  }).status === 0

/** As root: directly, or by a sudo that asks for no password. */
const privileged = ():
  | ((command: string, args: ReadonlyArray<string>, seconds: number) => boolean)
  | undefined => {
  if (isRoot) return run
  return run("sudo", ["-n", "true"], 5)
    ? (command, args, seconds) => run("sudo", ["-n", command, ...args], seconds)
    : undefined
}

/** Dependencies that a Debian package brings, with its name. */
const packages: ReadonlyMap<string, string> = new Map([
  ["redis-server", "redis-server"],
  ["haproxy", "haproxy"],
  ["nsupdate", "bind9-dnsutils"],
  ["git", "git"]
])

const apt = ["-o", "DPkg::Lock::Timeout=120", "install", "-y", "--no-install-recommends"]

/**
 * Debian starts the services of packages it installs. A cache server of its own on the usual port is nothing we need:
 * for the time of the installation a policy says no. (Debian Policy Manual, section 9.3.3; invoke-rc.d(8).)
 */
const withoutServices = (install: () => boolean): boolean => {
  const policy = "/usr/sbin/policy-rc.d"
  const ours = isRoot && !fs.existsSync(policy)
  if (ours) fs.writeFileSync(policy, "#!/bin/sh\nexit 101\n", { mode: 0o755 })
  try {
    return install()
  } finally {
    if (ours) fs.rmSync(policy, { force: true })
  }
}

/** Installs a Debian package if this process may; false: it may not, or it did not work. */
export const installPackage = (name: string): boolean => {
  const asRoot = privileged()
  if (asRoot === undefined || !fs.existsSync("/usr/bin/apt-get")) return false
  const install = () => asRoot("apt-get", [...apt, name], 300)
  return withoutServices(() => install() || (asRoot("apt-get", ["update"], 180) && install()))
}

/** Idempotent, and quick when nothing is missing. Progress goes to `say`. */
export const setUpHost = async (say: (line: string) => void): Promise<void> => {
  const missing = (await dependencies("files")).filter(({ found }) => found === undefined)
  if (missing.length === 0) return
  const asRoot = privileged()
  for (const { name, hint, neededBy } of missing) {
    const debian = packages.get(name)
    if (debian !== undefined && asRoot !== undefined) {
      say(`Installing ${debian} (needed by ${neededBy}) ...`)
      if (installPackage(debian)) continue
    }
    if (name === `user ${serverUser}` && asRoot !== undefined) {
      say(`Making the system user ${serverUser} ...`)
      const made = asRoot(
        "useradd",
        ["--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", serverUser],
        30
      )
      if (made) continue
    }
    say(`${name} is missing; ${neededBy} will say so. To get it: ${hint}`)
  }
}
