/**
 * Folders that many tests begin with, copied from ones that were made once in the run. Among them are new data folders
 * of Postgres: a copy takes a tenth of initdb's processor time. Each of these has a system identifier of its own, as it
 * would from initdb.
 */
import { createHash, randomBytes, randomUUID } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Host, type RunResult } from "#src/infra/host/Host.ts"

/** Names the folder of this run's templates, for all of its processes. Where it is not set, every folder is made anew. */
const variable = "SVC_TEST_TEMPLATES"

/** Makes that folder, and answers how to remove it. */
export const keepTemplates = (): (() => void) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
  // Whoever servers run as writes to it.
  fs.chmodSync(folder, 0o777)
  process.env[variable] = folder
  return () => {
    delete process.env[variable]
    fs.rmSync(folder, { recursive: true, force: true })
  }
}

/**
 * Copies a folder that is the same in every test of the run: `make` makes it the first time, at `target`. Without
 * templates it makes it every time.
 */
export const fromTemplate = (name: string, target: string, make: () => void): void => {
  const templates = process.env[variable]
  const template = path.join(templates ?? "", name)
  if (templates !== undefined && fs.existsSync(template)) {
    fs.cpSync(template, target, { recursive: true })
    return
  }
  make()
  if (templates === undefined) return
  const making = `${template}.${randomUUID()}`
  fs.cpSync(target, making, { recursive: true })
  try {
    fs.renameSync(making, template)
  } catch {
    // Another process was first.
  }
}

type Run<E> = (command: string, args: ReadonlyArray<string>) => Effect.Effect<RunResult, E>

/** Makes the folder `target` as `initdb` with these arguments would. `run` runs a program as the folder's owner. */
export const newData = <E>(
  run: Run<E>,
  initdb: string,
  args: ReadonlyArray<string>,
  target: string
): Effect.Effect<RunResult, E> =>
  Effect.gen(function* () {
    const templates = process.env[variable]
    if (templates === undefined) return yield* run(initdb, [`--pgdata=${target}`, ...args])
    const digest = createHash("sha256").update(args.join("\0")).digest("hex")
    const template = path.join(templates, digest.slice(0, 16))
    if (!fs.existsSync(template)) {
      const making = `${template}.${randomUUID()}`
      const made = yield* run(initdb, [`--pgdata=${making}`, ...args])
      if (made.code !== 0) return made
      // Another process may have been first.
      yield* Effect.ignore(Effect.try(() => fs.renameSync(making, template)))
    }
    const copied = yield* run("cp", ["-a", template, target])
    if (copied.code === 0) drawIdentifier(target)
    return copied
  })

/** The machine, where initdb is as {@link newData}. */
export const copyingHost = Layer.effect(
  Host,
  Effect.map(Host, (host) => ({
    ...host,
    run: (command, [first = "", ...rest], options) => {
      const target = /^--pgdata=(.*)$/.exec(first)?.[1]
      return path.basename(command) === "initdb" && target !== undefined
        ? newData((program, args) => host.run(program, args, options), command, rest, target)
        : host.run(command, [first, ...rest], options)
    }
  }))
).pipe(Layer.provide(Host.layer))

/**
 * The identifier is the first field of `ControlFileData` (src/include/catalog/pg_control.h), whose last one is the
 * CRC-32C of all before it, and stands in the header of the first page of each segment of the log
 * (`XLogLongPageHeaderData`, src/include/access/xlog_internal.h).
 */
const drawIdentifier = (folder: string): void => {
  const identifier = randomBytes(8)
  // It begins with seconds since 1970: never negative where SQL shows it as a bigint.
  identifier.writeUInt8(identifier.readUInt8(7) & 0x7f, 7)
  const control = path.join(folder, "global", "pg_control")
  const bytes = fs.readFileSync(control)
  const end = lengthBeforeChecksum(bytes)
  identifier.copy(bytes)
  bytes.writeUInt32LE(crc32c(bytes, end), end)
  fs.writeFileSync(control, bytes)
  const log = path.join(folder, "pg_wal")
  for (const name of fs.readdirSync(log).filter((name) => /^[0-9A-F]{24}$/.test(name))) {
    const segment = fs.openSync(path.join(log, name), "r+")
    fs.writeSync(segment, identifier, 0, 8, 24)
    fs.closeSync(segment)
  }
}

/** Where the checksum stands differs between versions: where it is right. */
const lengthBeforeChecksum = (control: Buffer): number => {
  let crc = 0xffff_ffff
  for (let at = 0; at < 512; at++) {
    if (at > 64 && at % 4 === 0 && control.readUInt32LE(at) === (crc ^ 0xffff_ffff) >>> 0) return at
    crc = crcStep(crc, control[at] ?? 0)
  }
  throw new Error("there is no checksum in pg_control")
}

const crc32c = (bytes: Buffer, length: number): number => {
  let crc = 0xffff_ffff
  for (const byte of bytes.subarray(0, length)) crc = crcStep(crc, byte)
  return (crc ^ 0xffff_ffff) >>> 0
}

/** CRC-32C (Castagnoli), bit by bit: RFC 3720, appendix B.4. */
const crcStep = (crc: number, byte: number): number => {
  let next = crc ^ byte
  for (let bit = 0; bit < 8; bit++) next = (next >>> 1) ^ (next & 1 ? 0x82f6_3b78 : 0)
  return next
}
