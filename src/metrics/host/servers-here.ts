/** The managed servers whose folders are on this machine, and their processes as they say themselves. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { looksLikeUid } from "#schemas/names.ts"
import { serverFiles } from "#src/infra/host/server-files.ts"
import { configName, pidName } from "#src/infra/redis/settings.ts"
import { kernelText } from "./kernel-text.ts"
import { identityOf, type Process, processOf } from "./process-usage.ts"

export interface ServerHere {
  /** Name of its folder and of its control group: the uid of its resource, and for a standby its number after it. */
  readonly key: string
  readonly uid: string
  /** Number of a standby. */
  readonly standby: number | undefined
  readonly program: "postgres" | "redis"
  readonly folder: string
  /** Its first process; undefined: it does not run, or this system does not tell. */
  readonly process: Process | undefined
  /** What tells this run of it from every other one. */
  readonly run: string | undefined
  /** Where a Postgres server listens. */
  readonly port: number | undefined
}

/** Files that are read at a time. */
const atOnce = 16

export const makeServersHere = (dataDir: string, procDir: string) => {
  /** By server the run whose command line was seen to be its own: pids are used again. */
  const seen = new Map<string, string>()

  const runOf = (key: string, pid: number, marker: string) => {
    const process = processOf(procDir, pid)
    if (process === undefined) return { process: undefined, run: undefined }
    const run = identityOf(procDir, process)
    if (seen.get(key) !== run) {
      if (kernelText(path.join(procDir, String(pid), "cmdline"))?.includes(marker) !== true)
        return { process: undefined, run: undefined }
      seen.set(key, run)
    }
    return { process, run }
  }

  const look = async (file: string, key: string): Promise<ServerHere | undefined> => {
    const uid = key.slice(0, 36)
    const number = /^-(\d)$/.exec(key.slice(36))?.[1]
    if (!looksLikeUid(uid) || (key.length > 36 && number === undefined)) return undefined
    const program = file.endsWith(pidName) ? "redis" : "postgres"
    const folder = path.join(dataDir, program === "redis" ? "caches" : "databases", key)
    // The pid, and of Postgres the port in the fourth line (PostgreSQL source, `miscadmin.h`: LOCK_FILE_LINE_PORT).
    const [pid = "", , , port = ""] = (await fs.readFile(file, "utf8").catch(() => "")).split("\n")
    const marker = program === "redis" ? path.join(folder, configName) : `/${key}/conf`
    return {
      key,
      uid,
      standby: number === undefined ? undefined : Number(number),
      program,
      folder,
      ...(Number(pid) > 1 ? runOf(key, Number(pid), marker) : { process: undefined, run: undefined }),
      port: Number(port) > 0 ? Number(port) : undefined
    }
  }

  return Effect.gen(function* () {
    const files = yield* serverFiles(dataDir, { databases: "data/postmaster.pid", caches: pidName })
    const found = yield* Effect.forEach(
      files,
      ({ server, file }) => Effect.promise(() => look(file, server)),
      {
        concurrency: atOnce
      }
    )
    const servers = found.filter((one) => one !== undefined)
    const keys = new Set(servers.map(({ key }) => key))
    for (const key of seen.keys()) if (!keys.has(key)) seen.delete(key)
    return servers
  })
}
