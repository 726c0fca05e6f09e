import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { onStore } from "#src/cli/admin.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { json, out, table } from "#src/cli/output.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { checkUpstreams } from "./runtime/check.ts"
import { Upstreams } from "./runtime/Upstreams.ts"

const upstreams = Upstreams.layer.pipe(
  Layer.provide(Outbound.layer),
  Layer.provide(CertificateAuthority.layer),
  Layer.provide(PlatformSecrets.layer)
)

export const check = (flags: { readonly json: boolean }) =>
  onStore(
    Effect.gen(function* () {
      const checked = yield* Effect.provide(checkUpstreams, upstreams)
      if (checked.length === 0) {
        return yield* failure("SVC_AI_UPSTREAMS names no upstream", exitCodes.notFound)
      }
      if (flags.json) yield* json(checked.map(({ wrong = null, ...one }) => ({ ...one, wrong })))
      else {
        yield* out(
          table(
            ["MODEL", "UPSTREAM", "ANSWERS", "WRONG"],
            checked.map(({ model, upstream, milliseconds, wrong }) => [
              model,
              upstream,
              wrong === undefined ? `after ${milliseconds} ms` : "no",
              wrong ?? ""
            ])
          )
        )
      }
      const failed = checked.filter(({ wrong }) => wrong !== undefined).length
      if (failed > 0)
        return yield* failure(`${failed} of ${checked.length} upstreams do not answer as they should`)
    })
  )
