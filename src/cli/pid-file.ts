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

const ControlPlane = Schema.Struct({
  pid: Schema.Int.check(Schema.isGreaterThan(1)),
  began: Schema.String,
  apiUrl: Schema.String
})
export type ControlPlane = typeof ControlPlane.Type

const folderOf = (dataDir: string) => path.join(dataDir, "control-planes")
const fileOf = (dataDir: string, pid: number) => path.join(folderOf(dataDir), `${pid}.json`)

/**
 * When a process began, in a form that no other process of this machine ever has. Undefined: there is none.
 * (proc(5): field 22 of stat, in clock ticks since the boot; field 2 may hold spaces and brackets.)
 */
export const beganAt = async (pid: number): Promise<string | undefined> => {
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
      return undefined
    }
  }
  const found = await promisify(execFile)("ps", ["-o", "lstart=", "-p", String(pid)], {
    timeout: 5_000,
    env: helperEnvironment({ LC_ALL: "C", TZ: "UTC" })
  }).catch(() => undefined)
  const text = found?.stdout.trim()
  return text === undefined || text === "" ? undefined : text
}

export const register = (dataDir: string, apiUrl: string) =>
  Effect.promise(async () => {
    const began = await beganAt(process.pid)
    if (began === undefined) return
    const file = fileOf(dataDir, process.pid)
    await fs.mkdir(folderOf(dataDir), { recursive: true, mode: 0o700 })
    await fs.writeFile(`${file}.new`, JSON.stringify({ pid: process.pid, began, apiUrl }), { mode: 0o600 })
    await fs.rename(`${file}.new`, file)
  })

export const unregister = (dataDir: string) =>
  Effect.promise(() => fs.rm(fileOf(dataDir, process.pid), { force: true }))

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(ControlPlane))

/** Whether this very process still runs. */
export const isRunning = (one: ControlPlane) =>
  Effect.map(
    Effect.promise(() => beganAt(one.pid)),
    (began) => began === one.began
  )

/** The control planes that run, and not what merely has their process id now. Files of others are removed. */
export const running = Effect.fnUntraced(function* (dataDir: string) {
  const names = yield* Effect.promise(() => fs.readdir(folderOf(dataDir)).catch((): Array<string> => []))
  const found: Array<ControlPlane> = []
  for (const name of names.filter((one) => one.endsWith(".json"))) {
    const file = path.join(folderOf(dataDir), name)
    const one = decode(yield* Effect.promise(() => fs.readFile(file, "utf8").catch(() => "")))
    if (one._tag === "Some" && (yield* isRunning(one.value))) found.push(one.value)
    else yield* Effect.promise(() => fs.rm(file, { force: true }))
  }
  return found
})
