/**
 * Where backups are kept: a folder of this machine, or a bucket somewhere. An object there is whole or not there at
 * all, has its name for good, and is never changed.
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { codeOf } from "#src/infra/error-code.ts"
import { systemFault } from "../error-messages.ts"
import { PlaceFault } from "./place-fault.ts"

export { PlaceFault }

export class PlaceError extends Schema.TaggedError<PlaceError>()("PlaceError", {
  reason: PlaceFault,
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

export interface PlaceObject {
  readonly key: string
  readonly bytes: number
}

export interface Place {
  /** Which one it is, for messages and for the rows that say where something was put. */
  readonly id: string
  /** Keeps the content under a key, whole or not at all. Putting the same key again replaces it. */
  readonly put: (
    key: string,
    content: Stream.Stream<Uint8Array, PlaceError>
  ) => Effect.Effect<{ readonly bytes: number }, PlaceError>
  readonly get: (key: string) => Stream.Stream<Uint8Array, PlaceError>
  /** Every object whose key begins with `prefix`. */
  readonly list: (prefix: string) => Stream.Stream<PlaceObject, PlaceError>
  /** What is not there is removed. */
  readonly remove: (keys: ReadonlyArray<string>) => Effect.Effect<void, PlaceError>
}

/** Id of the repository on this machine. */
const localId = "local"

/** Bytes that are read at a time. */
const readSize = 1 << 20
/** Names of what is being written; they are no keys. */
const unfinished = /\.[0-9a-f]{12}\.part$/

/**
 * A folder. An object is written under another name, made durable and renamed, so what has its name is whole. Only
 * the control plane's own user can read it: the servers' user has no business here.
 */
export const localPlace = (dir: string): Place => {
  const fileOf = (key: string) => path.join(dir, ...key.split("/"))

  const put: Place["put"] = (key, content) =>
    Effect.acquireUseRelease(
      attempt("write", `Cannot write ${key}`, async () => {
        const file = fileOf(key)
        const temporary = `${file}.${randomBytes(6).toString("hex")}.part`
        return { file, temporary, handle: await open(temporary) }
      }),
      ({ file, temporary, handle }) =>
        Effect.gen(function* () {
          let bytes = 0
          yield* Stream.runForEachArray(content, (chunks) =>
            attempt("write", `Cannot write ${key}`, async () => {
              bytes += await writeAll(handle, chunks)
            })
          )
          yield* attempt("write", `Cannot write ${key}`, async () => {
            await handle.sync()
            await fs.rename(temporary, file)
            await syncFolder(path.dirname(file))
          })
          return { bytes }
        }),
      ({ temporary, handle }) =>
        Effect.promise(async () => {
          await handle.close().catch(() => {})
          await fs.rm(temporary, { force: true }).catch(() => {})
          await removeEmpty(dir, path.dirname(temporary))
        })
    )

  return {
    id: localId,
    put,
    get: (key) =>
      Stream.unwrap(
        Effect.map(
          Effect.acquireRelease(
            attempt("read", `Cannot read ${key}`, () => fs.open(fileOf(key), "r")),
            (handle) => Effect.promise(() => handle.close().catch(() => {}))
          ),
          (handle) =>
            Stream.unfold(undefined, () =>
              attempt("read", `Cannot read ${key}`, async () => {
                const buffer = Buffer.allocUnsafe(readSize)
                const { bytesRead } = await handle.read(buffer, 0, readSize, null)
                return bytesRead === 0 ? undefined : ([buffer.subarray(0, bytesRead), undefined] as const)
              })
            )
        )
      ),
    list: (prefix) =>
      Stream.fromAsyncIterable(walk(dir, "", prefix), toPlaceError("read", "Cannot list the backups")),
    remove: (keys) =>
      attempt("delete", "Cannot remove a backup", async () => {
        for (const key of keys) {
          await fs.rm(fileOf(key), { force: true })
          await removeEmpty(dir, path.dirname(fileOf(key)))
        }
      })
  }
}

/** With its folder, which somebody else may just remove because it is empty. */
const open = async (file: string): Promise<fs.FileHandle> => {
  for (let tries = 1; ; tries++) {
    await fs.mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
    try {
      return await fs.open(file, "wx", 0o600)
    } catch (error) {
      if (codeOf(error) !== "ENOENT" || tries === 5) throw error
    }
  }
}

/** In one call, unless the disk takes less at a time. */
const writeAll = async (handle: fs.FileHandle, chunks: ReadonlyArray<Uint8Array>): Promise<number> => {
  let [left, written] = [chunks.filter(({ length }) => length > 0), 0]
  while (left.length > 0) {
    let { bytesWritten: taken } = await handle.writev(left)
    written += taken
    left = left.flatMap((chunk) => {
      const rest = chunk.subarray(taken)
      taken = Math.max(0, taken - chunk.length)
      return rest.length === 0 ? [] : [rest]
    })
  }
  return written
}

/** Folders go with what was in them, and stay when somebody writes there. */
const removeEmpty = async (root: string, from: string): Promise<void> => {
  for (let at = from; at.length > root.length; at = path.dirname(at)) {
    const gone = await fs.rmdir(at).then(
      () => true,
      () => false
    )
    if (!gone) return
  }
}

/** Leaves alone what is being written. Folders whose names the prefix rules out are not entered. */
async function* walk(dir: string, at: string, prefix: string): AsyncGenerator<PlaceObject> {
  let names: Awaited<ReturnType<typeof entries>>
  try {
    names = await entries(path.join(dir, at))
  } catch (error) {
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") return
    throw error
  }
  for (const entry of names) {
    const key = at === "" ? entry.name : `${at}/${entry.name}`
    if (entry.isDirectory()) {
      if (`${key}/`.startsWith(prefix) || prefix.startsWith(`${key}/`)) yield* walk(dir, key, prefix)
    } else if (key.startsWith(prefix) && !unfinished.test(key)) {
      const found = await fs.stat(path.join(dir, key)).catch(() => undefined)
      if (found !== undefined) yield { key, bytes: found.size }
    }
  }
}

const entries = async (folder: string) =>
  (await fs.readdir(folder, { withFileTypes: true })).sort((a, b) => (a.name < b.name ? -1 : 1))

/** The name of a new file is durable when its folder is. */
const syncFolder = async (folder: string): Promise<void> => {
  const handle = await fs.open(folder, "r")
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

const toPlaceError = (reason: "read" | "write" | "delete", message: string) => (cause: unknown) => {
  const code = codeOf(cause)
  const said = `${message}: ${systemFault(cause)}`
  if (code === "ENOENT" && reason === "read")
    return new PlaceError({ reason: "not_found", message: said, cause })
  if (code === "ENOSPC" || code === "EDQUOT")
    return new PlaceError({ reason: "no_space", message: said, cause })
  return new PlaceError({ reason, message: said, cause })
}

const attempt = <A>(reason: "read" | "write" | "delete", message: string, body: () => Promise<A>) =>
  Effect.tryPromise({ try: body, catch: toPlaceError(reason, message) })
