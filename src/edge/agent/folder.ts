/**
 * The folder of a node of the edge: who it is, and the files from which HAProxy starts. What is in it can be made again
 * from the store at any time.
 */
import { randomBytes, randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { configName, edgePlace } from "#src/infra/haproxy/process.ts"
import { Host } from "#src/infra/host/Host.ts"
import { files } from "../haproxy-config.ts"

const Identity = Schema.fromJsonString(Schema.Struct({ id: Schema.String, agentKey: Schema.String }))
const decodeIdentity = Schema.decodeUnknownOption(Identity)

export const makeFolder = Effect.gen(function* () {
  const host = yield* Host
  const authority = yield* CertificateAuthority
  const place = edgePlace(host)
  const certificateDir = path.join(place.dir, files.certificateDir)
  const at = (name: string) => path.join(place.dir, name)
  const write = (name: string, content: string) => host.writeFile(at(name), content)

  /** HAProxy wants a certificate to begin with. It is shown to nobody. */
  const ensureFallback = Effect.gen(function* () {
    if (Option.isSome(yield* host.readFile(at(files.fallback)))) return
    const { certificatePem, privateKeyPem } = yield* authority.issue({ hosts: ["edge.invalid"] })
    yield* write(files.fallback, certificatePem + Redacted.value(privateKeyPem))
  })

  return {
    place,
    internalSocket: path.join(host.socketDir, "edge.internal"),
    secondSocket: path.join(host.socketDir, "edge.second"),
    /** Who this node is, for as long as its folder lives. */
    identity: Effect.gen(function* () {
      yield* host.directory(certificateDir)
      const stored = Option.flatMap(yield* host.readFile(at("node.json")), decodeIdentity)
      if (Option.isSome(stored)) return stored.value
      const made = { id: randomUUID(), agentKey: randomBytes(32).toString("hex") }
      yield* write("node.json", JSON.stringify(made))
      return made
    }),
    ensure: Effect.andThen(host.directory(certificateDir), ensureFallback),
    /** Whether somebody has taken files away. */
    isWhole: Effect.promise(() =>
      Promise.all(
        [configName, files.hosts, files.sites, files.certificates, files.fallback, files.certificateDir].map(
          (name) => fs.access(at(name))
        )
      ).then(
        () => true,
        () => false
      )
    ),
    config: Effect.map(host.readFile(at(configName)), Option.getOrUndefined),
    writeConfig: (config: string) => write(configName, config),
    writeMap: (name: string, lines: ReadonlyMap<string, string>) =>
      write(name, [...lines].map(([key, value]) => `${key} ${value}\n`).join("")),
    /** Those whose file is there, each as the line of HAProxy's list. */
    writeCertificateList: (names: Iterable<string>) =>
      write(files.certificates, [...names].map((name) => `${certificateFile(name)} ${name}\n`).join("")),
    writeCertificate: (name: string, pem: Redacted.Redacted) =>
      write(certificateFile(name), Redacted.value(pem)),
    readCertificate: (name: string) => host.readFile(at(certificateFile(name))),
    remove: (file: string) => host.removeAll(at(file)),
    /** Files in the folder of certificates, as {@link certificateFile} has them; also what a killed process left. */
    certificateFiles: Effect.promise(() =>
      fs.readdir(certificateDir).then(
        (all) => new Set(all.map((file) => `${files.certificateDir}/${file}`)),
        () => new Set<string>()
      )
    )
  }
})
export type EdgeFolder = Effect.Success<typeof makeFolder>

/** Relative to the folder, which is also how HAProxy knows it. */
export const certificateFile = (name: string) =>
  `${files.certificateDir}/${name.replace(/^\*/, "_wildcard")}.pem`
