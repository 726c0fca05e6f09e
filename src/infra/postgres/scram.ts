/**
 * SCRAM-SHA-256 verifiers as PostgreSQL stores them (RFC 5802, RFC 7677; PostgreSQL documentation, "pg_authid").
 * Passwords reach a server in this form only, so that no log and no statistics view can ever show one.
 */
import { createHash, createHmac, pbkdf2, randomBytes, timingSafeEqual } from "node:crypto"
import { promisify } from "node:util"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"

const derive = promisify(pbkdf2)
const iterations = 4096
const keyLength = 32

const keysOf = (password: Redacted.Redacted, salt: Buffer, rounds: number) =>
  Effect.promise(async () => {
    const salted = await derive(Redacted.value(password).normalize("NFKC"), salt, rounds, keyLength, "sha256")
    const client = createHmac("sha256", salted).update("Client Key").digest()
    return {
      stored: createHash("sha256").update(client).digest(),
      server: createHmac("sha256", salted).update("Server Key").digest()
    }
  })

export const scramVerifier = (password: Redacted.Redacted): Effect.Effect<string> =>
  Effect.suspend(() => {
    const salt = randomBytes(16)
    return Effect.map(
      keysOf(password, salt, iterations),
      ({ stored, server }) =>
        `SCRAM-SHA-256$${iterations}:${salt.toString("base64")}$${stored.toString("base64")}:${server.toString("base64")}`
    )
  })

/** Whether a stored verifier is of this password. Text of another form is of none. */
export const scramMatches = (verifier: string, password: Redacted.Redacted): Effect.Effect<boolean> => {
  const [, rounds, salt, stored, server] =
    /^SCRAM-SHA-256\$(\d{1,7}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)$/.exec(verifier) ?? []
  if (rounds === undefined || salt === undefined || stored === undefined || server === undefined) {
    return Effect.succeed(false)
  }
  return Effect.map(keysOf(password, Buffer.from(salt, "base64"), Number(rounds)), (keys) => {
    const mine = Buffer.concat([keys.stored, keys.server])
    const theirs = Buffer.concat([Buffer.from(stored, "base64"), Buffer.from(server, "base64")])
    return mine.length === theirs.length && timingSafeEqual(mine, theirs)
  })
}
