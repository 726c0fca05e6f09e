/**
 * Keyed digest of a secret value: tells whether a value changed without telling what it is. The key is the
 * store's own, so a fingerprint means nothing elsewhere and cannot be searched for.
 */
import { createHmac, randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { PlatformSecrets } from "./Secrets.ts"

export class Fingerprint extends Context.Service<Fingerprint, (value: string) => string>()(
  "svc/store/Fingerprint"
) {
  static readonly layer = Layer.effect(
    Fingerprint,
    Effect.gen(function* () {
      const platform = yield* PlatformSecrets
      const key = yield* platform.ensure(
        "fingerprint-key",
        Effect.sync(() => Redacted.make(randomBytes(32).toString("base64")))
      )
      return (value: string) =>
        createHmac("sha256", Redacted.value(key)).update(value).digest("base64url").slice(0, 22)
    })
  )
}
