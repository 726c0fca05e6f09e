/** The key of tickets: HAProxy checks with it that this platform let a visitor in. */
import { randomBytes } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { PlatformSecrets } from "#src/store/Secrets.ts"

/** 64 hexadecimal digits: HAProxy reads it as part of a line of its configuration. */
export const ticketKey = Effect.flatMap(PlatformSecrets, (secrets) =>
  secrets.ensure(
    "edge-ticket",
    Effect.sync(() => Redacted.make(randomBytes(32).toString("hex")))
  )
)
