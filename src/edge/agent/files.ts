/**
 * The files from which HAProxy starts, kept to what the node serves. A disk that takes nothing keeps no change from being
 * taken up: HAProxy goes on with what it has in memory, and the files are written once they can be. Only a new
 * certificate waits for its file.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { failed, type HaproxyError } from "#src/infra/haproxy/errors.ts"
import { Certificates } from "../certificates/Certificates.ts"
import { files } from "../haproxy-config.ts"
import { certificateFile, type EdgeFolder } from "./folder.ts"
import { Routes } from "./Routes.ts"

/** Between tries to write to a disk that took nothing: at first, and at most. */
const againMs = { first: 500, most: 30_000 }

/** `readAgain`: has everything read again and its certificates written. */
export const makeNodeFiles = Effect.fnUntraced(function* (
  { folder, config }: { readonly folder: EdgeFolder; readonly config: string },
  readAgain: Effect.Effect<void>
) {
  const routes = yield* Routes
  const certificates = yield* Certificates
  /** SHA-256 of the certificates whose files are written, by name. */
  const written = new Map<string, string>()
  /** Names that a certificate is to be served for. */
  let wanted: ReadonlySet<string> = new Set()
  let stale = true
  /** A certificate has no file. */
  let lacking = false
  let trouble: { readonly pauseMs: number; readonly until: number } | undefined

  const onHost = Effect.mapError(failed)

  const notWritten = Effect.fnUntraced(function* (error: HaproxyError) {
    if (trouble === undefined)
      yield* Effect.logWarning(
        `the edge serves, and its files cannot be written: after a restart it would serve what is in them: ${error.message}`
      )
    const pauseMs = Math.min(againMs.most, trouble === undefined ? againMs.first : trouble.pauseMs * 2)
    trouble = {
      pauseMs,
      until: (yield* Clock.currentTimeMillis) + pauseMs * (0.8 + 0.4 * Math.random())
    }
  })
  const isOfDisk = ({ reason }: HaproxyError) => reason === "Failed"

  const write = Effect.gen(function* () {
    // What becomes stale meanwhile is.
    stale = false
    yield* onHost(folder.ensure)
    const there = yield* folder.certificateFiles
    // Somebody may have taken them away since the folder was whole.
    for (const name of [...written.keys()].filter((one) => !there.has(certificateFile(one)))) {
      written.delete(name)
      lacking = true
    }
    yield* onHost(folder.writeMap(files.hosts, routes.hostLines()))
    yield* onHost(folder.writeMap(files.sites, routes.siteLines()))
    yield* onHost(folder.writeCertificateList(written.keys()))
  }).pipe(
    Effect.onError(() =>
      Effect.sync(() => {
        stale = true
      })
    )
  )

  return {
    /** There is something to write. */
    becomeStale: () => {
      stale = true
    },
    /** Names that a certificate is to be served for, whether or not it could be written. */
    certificateNames: () => wanted,
    /** Writes maps and list. */
    write,
    /** What cannot be written while HAProxy runs is tried again later; other failures stay. */
    later: (self: Effect.Effect<void, HaproxyError>) =>
      Effect.gen(function* () {
        if (trouble !== undefined && (yield* Clock.currentTimeMillis) < trouble.until) return
        yield* Effect.catchIf(self, isOfDisk, notWritten)
      }),
    /** The same before a start: what was written before does, if it is whole. */
    orAsTheyAre: (self: Effect.Effect<void, HaproxyError>) =>
      Effect.catchIf(self, isOfDisk, (error) =>
        Effect.flatMap(folder.isWhole, (whole) => (whole ? notWritten(error) : Effect.fail(error)))
      ),
    /** Writes what has changed, or what somebody has deleted. */
    keep: Effect.gen(function* () {
      const whole = yield* folder.isWhole
      if (whole && !stale && !lacking) return
      yield* write
      if ((yield* onHost(folder.config)) === undefined) yield* onHost(folder.writeConfig(config))
      if (!whole) written.clear()
      if (!whole || lacking) {
        lacking = false
        return yield* readAgain
      }
      if (trouble !== undefined) yield* Effect.logInfo("the files of the edge are written again")
      trouble = undefined
    }),
    /** Files of certificates whose content has changed, or that are gone. */
    writeCertificates: Effect.fnUntraced(function* (names: ReadonlySet<string> | "all") {
      const served = yield* certificates.served
      yield* Effect.catch(onHost(folder.ensure), notWritten)
      const there = yield* folder.certificateFiles
      wanted = new Set(served.keys())
      const changed = [...served].filter(
        ([name, print]) =>
          (names === "all" || names.has(name)) &&
          (written.get(name) !== print || !there.has(certificateFile(name)))
      )
      for (const file of yield* certificates.files(changed.map(([name]) => name))) {
        const done = yield* Effect.result(onHost(folder.writeCertificate(file.name, file.pem)))
        if (done._tag === "Success") {
          written.set(file.name, file.fingerprint)
          stale = true
        } else {
          lacking = true
          // The one before is better than none.
          if (there.has(certificateFile(file.name))) written.set(file.name, "")
          yield* notWritten(done.failure)
        }
      }
      for (const name of [...written.keys()].filter((one) => !wanted.has(one))) {
        written.delete(name)
        stale = true
      }
      // Private keys do not outlive their certificates, whoever wrote the file, and whether or not it was done.
      const kept = new Set([...wanted].map(certificateFile))
      yield* Effect.forEach(
        [...(yield* folder.certificateFiles)].filter((file) => !kept.has(file)),
        (file) => onHost(folder.remove(file)),
        { discard: true }
      )
    })
  }
})
