/**
 * A lock that all processes of a user share: a file that says who holds it. A lock whose holder is no more is taken
 * over; one whose holder is only slow is waited for.
 *
 * The file is made by link(2), so it is there whole or not at all. To take over the lock of a dead holder is itself
 * guarded by a lock that bears this holder's name: of two who find it dead, the second would otherwise remove the
 * lock that the first has made meanwhile.
 */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import { attempt, hasCode } from "./config-folder.ts"
import { type CliFailure, failure } from "./failure.ts"
import { beganAt } from "./pid-file.ts"

const Holder = Schema.Struct({
  id: Schema.String.check(Schema.isUUID()),
  pid: Schema.Int,
  /** Tells the process from a later one of the same number; null where the system does not say. */
  began: Schema.NullOr(Schema.String),
  /** Process ids mean something there only. */
  machine: Schema.String
})
type Holder = typeof Holder.Type
const decode = Schema.decodeUnknownOption(Schema.fromJsonString(Holder))

/** A holder of another machine (a home folder may be shared) is known by its age alone. Nobody holds for so long. */
const longestHoldMs = 180_000
const longestWaitMs = 120_000
const longestPauseMs = 250

/** A host name, and on Linux the namespace of process ids, which containers have of their own. */
const machineOf = async (): Promise<string> =>
  `${os.hostname()} ${await fs.readlink("/proc/self/ns/pid").catch(() => "")}`

const me = async (): Promise<Holder> => ({
  id: randomUUID(),
  pid: process.pid,
  began: (await beganAt(process.pid)) ?? null,
  machine: await machineOf()
})

interface Found {
  /** Undefined: not written by us. */
  readonly holder: Holder | undefined
  readonly changedAt: number
}

const look = async (lock: string): Promise<Found | undefined> => {
  try {
    const [text, { mtimeMs }] = await Promise.all([fs.readFile(lock, "utf8"), fs.stat(lock)])
    const holder = decode(text)
    return { holder: holder._tag === "Some" ? holder.value : undefined, changedAt: mtimeMs }
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined
    throw error
  }
}

const isDead = async ({ holder, changedAt }: Found, self: Holder, now: number): Promise<boolean> => {
  if (holder === undefined || holder.machine !== self.machine) return now - changedAt > longestHoldMs
  const began = await beganAt(holder.pid)
  return began === undefined || (holder.began !== null && began !== holder.began)
}

/** Writes who we are beside the lock, for as long as `put` takes to put it there. */
const named = async <A>(lock: string, self: Holder, put: (file: string) => Promise<A>): Promise<A> => {
  const file = `${lock}.${self.id}`
  try {
    await fs.writeFile(file, JSON.stringify(self), { flag: "wx", mode: 0o600 })
    return await put(file)
  } finally {
    await fs.rm(file, { force: true })
  }
}

const take = (lock: string, self: Holder): Promise<boolean> =>
  named(lock, self, (file) =>
    fs.link(file, lock).then(
      () => true,
      (error: unknown) => {
        if (hasCode(error, "EEXIST")) return false
        throw error
      }
    )
  )

const tryLock = async (lock: string, self: Holder, now: number): Promise<boolean> => {
  const found = await look(lock)
  if (found === undefined) return take(lock, self)
  if (!(await isDead(found, self, now))) return false
  const id = found.holder?.id ?? "unknown"
  const takeover = `${lock}.after-${id}`
  if (!(await tryLock(takeover, self, now))) return false
  try {
    const still = await look(lock)
    if (still === undefined || still.holder?.id !== found.holder?.id) return false
    await named(lock, self, (file) => fs.rename(file, lock))
    return true
  } finally {
    await fs.rm(takeover, { force: true })
  }
}

const release = async (lock: string, self: Holder): Promise<void> => {
  if ((await look(lock))?.holder?.id === self.id) await fs.rm(lock, { force: true })
}

/**
 * Runs while no other process does so for the same file. The folder is made if there is none. The body has to end
 * within three minutes; waiting for others ends after two.
 */
export const locked = <A, E, R>(
  file: string,
  self: Effect.Effect<A, E, R>
): Effect.Effect<A, E | CliFailure, R> => {
  const lock = `${file}.lock`
  const acquire = Effect.gen(function* () {
    const holder = yield* attempt(`Cannot lock ${lock}`, async () => {
      await fs.mkdir(path.dirname(lock), { recursive: true, mode: 0o700 })
      return me()
    })
    const startedAt = yield* Clock.currentTimeMillis
    for (let pauseMs = 10; ; pauseMs = Math.min(longestPauseMs, pauseMs * 1.5)) {
      const now = yield* Clock.currentTimeMillis
      if (yield* attempt(`Cannot lock ${lock}`, () => tryLock(lock, holder, now))) return holder
      if (now - startedAt > longestWaitMs)
        return yield* failure(`${lock} is held for too long; remove it if nothing of svc is running`)
      // Nothing is held here.
      yield* Effect.interruptible(Effect.sleep(yield* Random.nextBetween(pauseMs / 2, pauseMs)))
    }
  })
  return Effect.acquireUseRelease(
    acquire,
    () => self,
    (holder) => Effect.promise(() => release(lock, holder).catch(() => undefined))
  )
}
