/**
 * What managed servers write about themselves. Tenants and strangers cause lines in it, by statements that fail and by
 * passwords that are wrong, so it is kept short: the disk belongs to everybody.
 */
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import { AppConfig } from "#src/config.ts"
import { supervise } from "#src/engine/supervise.ts"
import { codeOf } from "../error-code.ts"
import { logName as redisLog } from "../redis/settings.ts"
import { serverFiles } from "./server-files.ts"

/** Of a database server, in its folder. */
export const postgresLog = "postgres.log"

const logs = { databases: postgresLog, caches: redisLog }
/** A log that is longer is cut. */
const longestBytes = 16 << 20
/** What is kept of it, in a file beside it. */
const keptBytes = 1 << 20
/** Of what is read when a server does not start. */
const mostRead = 64 << 10
const everyLook = "20 seconds"
/** Files that are looked at a time. */
const atOnce = 16

/** Bytes in a log; none where there is none. */
export const logSize = (file: string) =>
  Effect.promise(() =>
    fs.stat(file).then(
      ({ size }) => size,
      () => 0
    )
  )

/** The end of what was written after this many bytes. */
export const logSince = (file: string, before: number) =>
  Effect.promise(() =>
    opened(file, constants.O_RDONLY, (handle) => tail(handle, before, mostRead)).then(
      (bytes) => bytes.toString(),
      () => ""
    )
  )

/** Symbolic links are not followed: the folder belongs to the server's user, and this process may be root. */
const opened = async <A>(file: string, flags: number, body: (handle: fs.FileHandle) => Promise<A>) => {
  const handle = await fs.open(file, flags | constants.O_NOFOLLOW)
  try {
    return await body(handle)
  } finally {
    await handle.close()
  }
}

const tail = async (handle: fs.FileHandle, from: number, most: number): Promise<Buffer> => {
  const { size } = await handle.stat()
  // It was cut meanwhile: all that is in it is new.
  const start = Math.max(from > size ? 0 : from, size - most)
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(size - start), 0, size - start, start)
  return buffer.subarray(0, bytesRead)
}

/**
 * Servers append to the file that they have open, so it is emptied in place. A line that comes between the two steps is
 * lost; this log is for looking at trouble, and nothing is built on it.
 */
const shorten = (file: string) =>
  opened(file, constants.O_RDWR, async (handle) => {
    if ((await handle.stat()).size <= longestBytes) return
    const kept = await tail(handle, 0, keptBytes)
    await fs.rm(`${file}.old`, { force: true })
    await fs.writeFile(`${file}.old`, kept, { flag: "wx", mode: 0o600 })
    await handle.truncate()
  })

/** Cuts every log that has grown too long, also that of the state store. */
export const shortenLogs = Effect.fnUntraced(function* (dataDir: string) {
  const managed = yield* serverFiles(dataDir, logs)
  yield* Effect.forEach(
    [path.join(dataDir, "postgres", postgresLog), ...managed.map(({ file }) => file)],
    (file) =>
      Effect.tryPromise(() => shorten(file)).pipe(
        Effect.catch(({ cause }) =>
          codeOf(cause) === "ENOENT"
            ? Effect.void
            : Effect.logWarning("the log of a server could not be cut", { file, cause })
        )
      ),
    { concurrency: atOnce, discard: true }
  )
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { dataDir } = yield* AppConfig
    yield* shortenLogs(dataDir).pipe(
      Effect.repeat(Schedule.spaced(everyLook)),
      (loop) => supervise("keep the logs of servers short", loop),
      Effect.forkScoped
    )
  })
)
