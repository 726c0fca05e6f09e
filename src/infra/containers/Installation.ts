/** By what containers of this control plane are known on an engine that others may use as well. */
import { createHash, randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { PlatformSecrets } from "#src/store/Secrets.ts"

export class Installation extends Context.Service<
  Installation,
  {
    readonly labels: Readonly<Record<string, string>>
    /** `name=value`, to look for containers by. */
    readonly label: string
    readonly nameOf: (uid: string) => string
  }
>()("svc/infra/Installation") {
  static readonly layer = Layer.effect(
    Installation,
    Effect.gen(function* () {
      const platform = yield* PlatformSecrets
      const key = yield* platform.ensure(
        "container-installation",
        Effect.sync(() => Redacted.make(randomBytes(32).toString("base64")))
      )
      const id = createHash("sha256").update(Redacted.value(key)).digest("hex").slice(0, 16)
      return Installation.of({
        labels: { "svc.installation": id },
        label: `svc.installation=${id}`,
        nameOf: (uid) => `svc-${uid}`
      })
    })
  )
}
