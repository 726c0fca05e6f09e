/** An authority that this process trusts while a test runs: of servers that a control plane in it is to reach. */
import * as tls from "node:tls"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { trust } from "#test/setup/s3.ts"

const authority = CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))

export const trustedAuthority = Layer.effectDiscard(
  Effect.gen(function* () {
    const { caPem } = yield* CertificateAuthority
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        const before = tls.getCACertificates("default")
        trust(caPem)
        return before
      }),
      (before) => Effect.sync(() => tls.setDefaultCACertificates(before))
    )
  })
).pipe(Layer.provideMerge(authority))
