/** The files of uploads in the data folder, `<organization>/<digest>.<what>`: whose they are, and how many there may be. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { earlierForMs, isEarlier, mostEarlier } from "./earlier-archives.ts"

export interface UploadRef {
  readonly orgId: string
  /** SHA-256 of what was sent, in hexadecimal. */
  readonly digest: string
}

export interface UploadFile {
  /** Below the folder of all uploads. */
  readonly name: string
  readonly bytes: number
  /** When it was changed last, in milliseconds since 1970. */
  readonly at: number
}

export interface RoomBounds {
  readonly dataDir: string
  /** Folder of all uploads. */
  readonly root: string
  /** That all uploads together may have. */
  readonly bytes: number
  /** That stay free on the disk. */
  readonly floor: number
}

/** Part of what uploads may take that one organization may. */
const shareOfOne = 0.25
/** Uploads of one organization that have come in part, and files of all of its uploads. */
const mostUnfinished = 64
const mostFiles = 2_000

export const stemOf = (name: string) => name.split(".", 1)[0] ?? ""
export const refOf = (name: string): UploadRef => {
  const [orgId = "", digest = ""] = stemOf(name).split(path.sep)
  return { orgId, digest }
}
export const keyOf = ({ orgId, digest }: UploadRef): string => `${orgId}/${digest}`

export const filesIn = async (root: string): Promise<ReadonlyArray<UploadFile>> => {
  const names = await fs.readdir(root, { recursive: true }).catch(() => [])
  const stats = await Promise.all(
    names.map(async (name) => {
      const stat = await fs.stat(path.join(root, name)).catch(() => undefined)
      return stat?.isFile() === true ? [{ name, bytes: stat.size, at: stat.mtimeMs }] : []
    })
  )
  return stats.flat()
}

interface Sized {
  readonly orgId: string
  readonly bytes: number
}

/**
 * Whether there is room for so many bytes more, which may be the `rest` of an upload that has come in part. Earlier archives
 * go before anything is refused, the oldest first.
 */
export const roomFor =
  (
    wanted: Sized & { readonly rest: string | undefined },
    there: ReadonlyArray<UploadFile>,
    coming: ReadonlyArray<Sized>,
    { dataDir, root, bytes: most, floor }: RoomBounds
  ) =>
  async (): Promise<boolean> => {
    const spare = there.filter(({ name }) => isEarlier(name)).toSorted((a, b) => a.at - b.at)
    const needed = there
      .filter(({ name }) => !isEarlier(name))
      .map(({ name, bytes }) => ({ ...refOf(name), name, bytes }))
    const all = [...needed, ...coming]
    const own = all.filter(({ orgId }) => orgId === wanted.orgId)
    const unfinished = new Set(
      needed
        .filter(({ orgId, digest, name }) => orgId === wanted.orgId && digest !== wanted.rest && isPart(name))
        .map(({ digest }) => digest)
    )
    const { bavail, bsize } = await fs.statfs(dataDir)
    const isLow = (freed: number) => bavail * bsize + freed - wanted.bytes <= floor
    const bytes = sum(all) + wanted.bytes
    const tooMany =
      bytes > most ||
      sum(own) + wanted.bytes > most * shareOfOne ||
      own.length >= mostFiles ||
      (wanted.rest !== undefined && unfinished.size >= mostUnfinished)
    if (tooMany || isLow(sum(spare))) return false
    let freed = 0
    for (const { name, bytes: some } of spare) {
      if (bytes + sum(spare) - freed <= most && !isLow(freed)) break
      await fs.rm(path.join(root, name), { force: true })
      freed += some
    }
    return true
  }

const isPart = (name: string) => name.endsWith(".sending") || name.endsWith(".copies")
const sum = (some: ReadonlyArray<{ readonly bytes: number }>) =>
  some.reduce((total, { bytes }) => total + bytes, 0)

/** Names of earlier archives that are kept no longer. */
export const outdated = (files: ReadonlyArray<UploadFile>, now: number): ReadonlyArray<string> => {
  const spare = files.filter(({ name }) => isEarlier(name)).toSorted((a, b) => b.at - a.at)
  return [...Map.groupBy(spare, ({ name }) => refOf(name).orgId).values()].flatMap((own) => {
    const newest = new Set([...new Set(own.map(({ name }) => stemOf(name)))].slice(0, mostEarlier))
    return own
      .filter(({ name, at }) => at <= now - earlierForMs || !newest.has(stemOf(name)))
      .map(({ name }) => name)
  })
}
