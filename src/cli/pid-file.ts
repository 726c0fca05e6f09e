/** The running control plane of a data folder, by its pid file. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"

const fileOf = (dataDir: string) => path.join(dataDir, "control-plane.pid")

export const writePidFile = (dataDir: string) =>
  Effect.promise(() => fs.writeFile(fileOf(dataDir), `${process.pid}\n`, { mode: 0o600 }))

export const releasePidFile = (dataDir: string) =>
  Effect.promise(async () => {
    const text = await fs.readFile(fileOf(dataDir), "utf8").catch(() => "")
    if (Number(text) === process.pid) await fs.rm(fileOf(dataDir), { force: true })
  })

/** Pid of a control plane that really runs: a pid alone may have been given to something else. */
export const runningControlPlane = (dataDir: string) =>
  Effect.promise(async () => {
    const pid = Number(await fs.readFile(fileOf(dataDir), "utf8").catch(() => ""))
    if (!Number.isInteger(pid) || pid <= 1) return undefined
    try {
      process.kill(pid, 0)
    } catch {
      return undefined
    }
    if (process.platform !== "linux") return pid
    const line = await fs.readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")
    return line.includes("svc.mjs") ? pid : undefined
  })
