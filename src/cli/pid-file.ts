/**
 * The control planes that run over a data folder: a file for each, named by its process id.
 *
 * A process id alone says little, for it may have been given to something else since. So each file also says when the
 * process began, as its system counts it, and only the very same process is ever signalled.
 */
import { execFile } from "node:child_process"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { promisify } from "node:util"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { helperEnvironment } from "#src/infra/host/helper-environment.ts"
import { hasCode } from "./config-folder.ts"
import { failure } from "./failure.ts"

const ControlPlane = Schema.Struct({
  pid: Schema.Int.check(Schema.isGreaterThan(1)),
  began: Schema.String,
  apiUrl: Schema.String
})
export type ControlPlane = typeof ControlPlane.Type

const folderOf = (dataDir: string) => path.join(dataDir, "control-planes")
const fileOf = (dataDir: string, pid: number) => path.join(folderOf(dataDir), `${pid}.json`)

/**
 * When a process began, in a form that no other process of this machine ever has. Undefined: there is none; null: there is
 * one, and it cannot be told, as when this process has too many files open.
 * (proc(5): field 22 of stat, in clock ticks since the boot; field 2 may hold spaces and brackets.)
 */
export const beganAt = async (pid: number): Promise<string | null | undefined> => {
  if (process.platform === "linux") {
    try {
      const [stat, boot] = await Promise.all([
        fs.readFile(`/proc/${pid}/stat`, "utf8"),
        fs.readFile("/proc/sys/kernel/random/boot_id", "utf8")
      ])
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
      // A process that has ended and was not waited for yet does nothing any more.
      return fields[0] === "Z" || fields[19] === undefined ? undefined : `${boot.trim()}/${fields[19]}`
    } catch {
      return isThere(pid) ? null : undefined
    }
  }
  const found = await promisify(execFile)("ps", ["-o", "lstart=", "-p", String(pid)], {
    timeout: 5_000,
    env: helperEnvironment({ LC_ALL: "C", TZ: "UTC" })
  }).catch(() => undefined)
  const text = found?.stdout.trim()
  if (text !== undefined && text !== "") return text
  return isThere(pid) ? null : undefined
}

const isThere = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return !hasCode(error, "ESRCH")
  }
}

export const register = (dataDir: string, apiUrl: string) =>
  Effect.promise(async () => {
    const began = await beganAt(process.pid)
    if (typeof began !== "string") return
    const file = fileOf(dataDir, process.pid)
    await fs.mkdir(folderOf(dataDir), { recursive: true, mode: 0o700 })
    await fs.writeFile(`${file}.new`, JSON.stringify({ pid: process.pid, began, apiUrl }), { mode: 0o600 })
    await fs.rename(`${file}.new`, file)
  })

export const unregister = (dataDir: string) =>
  Effect.promise(() => fs.rm(fileOf(dataDir, process.pid), { force: true }))

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(ControlPlane))

/** Whether this very process still runs, as far as can be told. */
export const isRunning = (one: ControlPlane) =>
  Effect.map(
    Effect.promise(() => beganAt(one.pid)),
    (began) => began === null || began === one.began
  )

/**
 * The control planes that run, and not what merely has their process id now. Files of others are removed. Fails where it
 * cannot be told: what is found is signalled, and what is not found is thought to have ended.
 */
export const running = Effect.fnUntraced(function* (dataDir: string) {
  const names = yield* Effect.promise(() => fs.readdir(folderOf(dataDir)).catch((): Array<string> => []))
  const found: Array<ControlPlane> = []
  for (const name of names.filter((one) => one.endsWith(".json"))) {
    const file = path.join(folderOf(dataDir), name)
    const one = decode(yield* Effect.promise(() => fs.readFile(file, "utf8").catch(() => "")))
    const began = one._tag === "Some" ? yield* Effect.promise(() => beganAt(one.value.pid)) : undefined
    if (began === null)
      return yield* failure(`${file} names a process of which nothing can be told; try again`)
    if (one._tag === "Some" && began === one.value.began) found.push(one.value)
    else yield* Effect.promise(() => fs.rm(file, { force: true }))
  }
  return found
})
