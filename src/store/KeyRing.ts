/**
 * The keys that seal secrets at rest: AES-256-GCM, each sealed value names its key, the first key of the ring seals.
 *
 * The place where a value belongs (organization, resource, field) is authenticated with it, so that a row copied
 * to another tenant does not open. A ring that lacks the key of a stored value stops the start, not the request.
 */
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { AppConfig } from "#src/config.ts"

export class KeyRingError extends Schema.TaggedError<KeyRingError>()("KeyRingError", {
  message: Schema.String
}) {}

export interface Sealed {
  readonly keyId: string
  /** Nonce (12 bytes), ciphertext, tag (16 bytes). */
  readonly bytes: Uint8Array
}

/** Bytes at the start of a sealed value that no other value has. */
export const nonceLength = 12
const tagLength = 16

export class KeyRing extends Context.Service<
  KeyRing,
  {
    readonly sealingKeyId: string
    readonly keyIds: ReadonlyArray<string>
    /** `place` says where the value belongs; opening needs the same words. */
    readonly seal: (place: ReadonlyArray<string>, value: Redacted.Redacted) => Sealed
    readonly open: (
      place: ReadonlyArray<string>,
      sealed: Sealed
    ) => Effect.Effect<Redacted.Redacted, KeyRingError>
  }
>()("svc/store/KeyRing") {
  static readonly layer = Layer.effect(
    KeyRing,
    Effect.gen(function* () {
      const config = yield* AppConfig
      const text =
        config.encryptionKeys === undefined
          ? yield* keyFile(path.join(config.dataDir, "encryption.keys"))
          : Redacted.value(config.encryptionKeys)
      return make(yield* parse(text))
    })
  )
  /** Fixed keys, written as in the settings. */
  static readonly layerOf = (keys: Redacted.Redacted) =>
    Layer.effect(KeyRing, Effect.map(parse(Redacted.value(keys)), make))
  /** A ring of one random key that is gone with the process. */
  static readonly layerEphemeral = Layer.sync(KeyRing, () => make(new Map([["ephemeral", randomBytes(32)]])))
}

const make = (keys: ReadonlyMap<string, Buffer>) => {
  const [sealing] = keys
  if (sealing === undefined) throw new Error("a key ring holds at least one key")
  const [sealingKeyId, sealingKey] = sealing
  // As JSON, so that ("a", "bc") and ("ab", "c") are different places.
  const aad = (place: ReadonlyArray<string>) => Buffer.from(JSON.stringify(place))
  return KeyRing.of({
    sealingKeyId,
    keyIds: [...keys.keys()],
    seal: (place, value) => {
      const nonce = randomBytes(nonceLength)
      const cipher = createCipheriv("aes-256-gcm", sealingKey, nonce).setAAD(aad(place))
      const body = Buffer.concat([cipher.update(Redacted.value(value), "utf8"), cipher.final()])
      return { keyId: sealingKeyId, bytes: Buffer.concat([nonce, body, cipher.getAuthTag()]) }
    },
    open: (place, sealed) =>
      Effect.suspend(() => {
        const key = keys.get(sealed.keyId)
        if (key === undefined) {
          return new KeyRingError({
            message: `The key "${sealed.keyId}" that sealed a value is not in the ring`
          })
        }
        try {
          const bytes = Buffer.from(sealed.bytes)
          const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, nonceLength))
            .setAAD(aad(place))
            .setAuthTag(bytes.subarray(bytes.length - tagLength))
          const body = bytes.subarray(nonceLength, bytes.length - tagLength)
          return Effect.succeed(
            Redacted.make(Buffer.concat([decipher.update(body), decipher.final()]).toString("utf8"))
          )
        } catch {
          // The reason tells an attacker something and an operator nothing.
          return new KeyRingError({ message: "A sealed value does not open: it was altered or moved" })
        }
      })
  })
}

/** `id:base64` pairs separated by commas or line ends. */
const parse = (text: string) =>
  Effect.suspend(() => {
    const keys = new Map<string, Buffer>()
    for (const item of text.split(/[,\n]/).map((part) => part.trim())) {
      if (item === "") continue
      const [, id, encoded] = /^([A-Za-z0-9_-]{1,40}):([A-Za-z0-9+/=_-]+)$/.exec(item) ?? []
      const key = Buffer.from(encoded ?? "", "base64")
      if (id === undefined || key.length !== 32) {
        return new KeyRingError({
          message:
            "Encryption keys are written as id:base64, each of 32 bytes, separated by commas (SVC_ENCRYPTION_KEYS)"
        })
      }
      if (keys.has(id)) return new KeyRingError({ message: `The encryption key "${id}" is given twice` })
      keys.set(id, key)
    }
    return keys.size === 0
      ? new KeyRingError({ message: "No encryption key is given" })
      : Effect.succeed(keys)
  })

/** A name of its own for each key, so that a key file that was lost and made anew is not taken for the old one. */
const newKey = () => `k-${randomBytes(4).toString("hex")}:${randomBytes(32).toString("base64")}`

/** Reads the key file, making it first when there is none. Linking is atomic: of several processes one wins. */
const keyFile = (file: string) =>
  Effect.tryPromise({
    try: async () => {
      await fs.mkdir(path.dirname(file), { recursive: true })
      const read = () => fs.readFile(file, "utf8")
      try {
        return await read()
      } catch (error) {
        if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error
      }
      const temporary = `${file}.${process.pid}.tmp`
      await fs.writeFile(temporary, `${newKey()}\n`, {
        mode: 0o600,
        flush: true
      })
      try {
        await fs.link(temporary, file)
      } catch (error) {
        if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error
      } finally {
        await fs.rm(temporary, { force: true })
      }
      return await read()
    },
    catch: (cause) =>
      new KeyRingError({
        message: `Cannot read or make the key file ${file}: ${cause instanceof Error ? cause.message : String(cause)}`
      })
  })
