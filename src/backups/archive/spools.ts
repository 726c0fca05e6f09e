/** Where servers leave finished segments of their logs until they are in the repository. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { serverFolders } from "#src/infra/postgres/folders.ts"
import type { ManagedDatabase } from "../Databases.ts"
import { isHistory, isSegment } from "./log.ts"

export interface Spool {
  /** With the lineage whose segments these are. */
  readonly database: ManagedDatabase
  /** Whether that is the history that the database has now. */
  readonly current: boolean
  readonly folder: string
}

export interface Finished {
  readonly name: string
  readonly file: string
  readonly finishedAt: Date
}

/** Each of one history: after a change of the data folder there may be two. */
export const spoolsOf = (dataDir: string, database: ManagedDatabase) =>
  Effect.promise(async (): Promise<ReadonlyArray<Spool>> => {
    const dir = serverFolders(dataDir).dirOf(database.uid)
    const names = await fs.readdir(dir).catch(() => [])
    return names.flatMap((name): ReadonlyArray<Spool> => {
      const [, other] = /^archive-([0-9a-f-]{36})$/.exec(name) ?? []
      const lineage = name === "archive" ? database.uid : other
      if (lineage === undefined) return []
      const current = lineage === database.lineage
      return [{ database: { ...database, lineage }, current, folder: path.join(dir, name) }]
    })
  })

/** In the order of the log. */
export const finishedIn = (folder: string) =>
  Effect.promise(async (): Promise<ReadonlyArray<Finished>> => {
    const names = await fs.readdir(folder).catch(() => [])
    const found: Array<Finished> = []
    for (const name of names) {
      const file = path.join(folder, name)
      // Labels of backups are kept with the backups; a part of a segment that another timeline ended is in that one.
      if (/\.(backup|partial)$/.test(name)) await fs.rm(file, { force: true })
      if (!isSegment(name) && !isHistory(name)) continue
      const stat = await fs.stat(file).catch(() => undefined)
      if (stat !== undefined) found.push({ name, file, finishedAt: stat.mtime })
    }
    return found.sort((a, b) => (order(a.name) < order(b.name) ? -1 : 1))
  })

/** By position; history files first, because a timeline is of no use without them. */
const order = (name: string) => (isHistory(name) ? `0${name}` : `1${name.slice(8)}${name}`)
