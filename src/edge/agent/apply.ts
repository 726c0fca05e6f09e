/**
 * Brings a running HAProxy to what is to be served, through its control socket. What it has is read from it when that is
 * in doubt, and remembered between changes. New lines come before old ones go, and a site before the host names that lead
 * to it, so that no request meets half of a change.
 */
import * as Effect from "effect/Effect"
import {
  abortCertificates,
  changeMap,
  fingerprintOf,
  type MapChanges,
  mapChanges,
  putCertificate,
  readCertificateList,
  readCertificates,
  readMap,
  removeCertificate
} from "#src/infra/haproxy/control.ts"
import { failed, type HaproxyError } from "#src/infra/haproxy/errors.ts"
import { files } from "../haproxy-config.ts"
import { certificateFile, type EdgeFolder } from "./folder.ts"

type Lines = ReadonlyMap<string, string>

/** One certificate that HAProxy refuses keeps nothing else from being taken up. */
const unlessRefused = (message: string) => (self: Effect.Effect<void, HaproxyError>) =>
  Effect.catchIf(
    self,
    (error) => error.reason === "Refused",
    (error) => Effect.logError(message, error)
  )

const changed = (known: Map<string, string>, { add, set, remove }: MapChanges) => {
  for (const [key, value] of [...add, ...set]) known.set(key, value)
  for (const key of remove) known.delete(key)
}

export const makeApply = (folder: EdgeFolder) => {
  const { socket } = folder.place
  let hosts = new Map<string, string>()
  let sites = new Map<string, string>()
  /** File and fingerprint of the certificates in use, by file. */
  let certificates = new Map<string, string>()
  let listed = new Set<string>()

  const part = Effect.fnUntraced(function* (map: string, known: Map<string, string>, changes: MapChanges) {
    yield* changeMap(socket, map, changes)
    changed(known, changes)
  })
  const additions = (changes: MapChanges): MapChanges => ({ ...changes, remove: [] })
  const removals = ({ remove }: MapChanges): MapChanges => ({ add: [], set: [], remove })

  const maps = Effect.fnUntraced(function* (wanted: {
    readonly hosts: MapChanges
    readonly sites: MapChanges
  }) {
    yield* part(files.sites, sites, additions(wanted.sites))
    yield* part(files.hosts, hosts, additions(wanted.hosts))
    yield* part(files.hosts, hosts, removals(wanted.hosts))
    yield* part(files.sites, sites, removals(wanted.sites))
  })

  /** What turns the lines of these keys into the wanted ones; undefined: there is to be none. */
  const differences = (known: Lines, keys: Iterable<string>, line: (key: string) => string | undefined) => {
    const of = (lookup: (key: string) => string | undefined) =>
      new Map(
        [...keys].flatMap((key): ReadonlyArray<[string, string]> => {
          const value = lookup(key)
          return value === undefined ? [] : [[key, value]]
        })
      )
    return mapChanges(
      of((key) => known.get(key)),
      of(line)
    )
  }

  const put = Effect.fnUntraced(function* (name: string, pem: string) {
    const file = certificateFile(name)
    const print = fingerprintOf(pem)
    if (certificates.get(file) === print && listed.has(file)) return
    yield* putCertificate(socket, files.certificates, {
      file,
      name,
      pem,
      known: certificates.has(file),
      listed: listed.has(file)
    })
    certificates.set(file, print)
    listed.add(file)
  })
  const drop = Effect.fnUntraced(function* (file: string) {
    if (!certificates.has(file)) return
    yield* removeCertificate(socket, files.certificates, { file, listed: listed.has(file) })
    certificates.delete(file)
    listed.delete(file)
  }, unlessRefused("a certificate stays in HAProxy until it is compared again"))

  return {
    /** Reads from HAProxy what it has. */
    look: Effect.gen(function* () {
      yield* abortCertificates(socket)
      hosts = yield* readMap(socket, files.hosts)
      sites = yield* readMap(socket, files.sites)
      certificates = new Map(yield* readCertificates(socket))
      certificates.delete(files.fallback)
      listed = new Set((yield* readCertificateList(socket, files.certificates)).map(({ file }) => file))
    }),
    /** Makes both maps what they should be. */
    allMaps: (wanted: { readonly hosts: Lines; readonly sites: Lines }) =>
      maps({ hosts: mapChanges(hosts, wanted.hosts), sites: mapChanges(sites, wanted.sites) }),
    /** The lines of these keys alone. */
    someMaps: (wanted: {
      readonly hosts: Iterable<string>
      readonly sites: Iterable<string>
      readonly hostLine: (key: string) => string | undefined
      readonly siteLine: (key: string) => string | undefined
    }) =>
      maps({
        hosts: differences(hosts, wanted.hosts, wanted.hostLine),
        sites: differences(sites, wanted.sites, wanted.siteLine)
      }),
    /** Takes the file of a certificate into use. One that HAProxy refuses is told in the log, and left out. */
    putCertificate: Effect.fnUntraced(function* (name: string) {
      const pem = yield* Effect.mapError(folder.readCertificate(name), failed)
      if (pem._tag === "None") return
      yield* unlessRefused(`the certificate of ${name} cannot be served`)(put(name, pem.value))
    }),
    /** All but those of these names. */
    dropCertificatesBut: (names: Iterable<string>) => {
      const wanted = new Set([...names].map(certificateFile))
      return Effect.forEach(
        [...certificates.keys()].filter((file) => !wanted.has(file)),
        drop,
        {
          discard: true
        }
      )
    },
    dropCertificate: (name: string) => drop(certificateFile(name))
  }
}
