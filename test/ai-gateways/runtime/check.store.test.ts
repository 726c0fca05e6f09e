import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { checkUpstreams } from "#src/ai-gateways/runtime/check.ts"
import { Upstreams } from "#src/ai-gateways/runtime/Upstreams.ts"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { anthropicSays, refuses, says, standIn } from "./upstream.ts"
import { upstreamsOf } from "./world.ts"

const upstreamsWith = (value: unknown, outboundAllow = ["127.0.0.0/8"]) =>
  Upstreams.layer.pipe(
    Layer.provide(Outbound.layer),
    Layer.provide(CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))),
    Layer.provide(AppConfig.layerWith({ outboundAllow }, { SVC_AI_UPSTREAMS: JSON.stringify(value) })),
    Layer.provide(Logger.layer([]))
  )

it.live("a check tells of each upstream whether it answers, and what is wrong otherwise", () =>
  Effect.gen(function* () {
    const standIns = { first: yield* standIn, second: yield* standIn, anthropic: yield* standIn }
    standIns.first.behave(refuses(401, "the provider's own words"))
    standIns.second.behave(says(["ready"], ""))
    standIns.anthropic.behave(anthropicSays(["ready"]))
    const checked = yield* Effect.provide(checkUpstreams, upstreamsWith(upstreamsOf(standIns)))
    assert.deepStrictEqual(
      checked.map(({ upstream, wrong }) => [upstream, wrong?.split(":")[0]]),
      [
        ["first", "upstream_misconfigured"],
        ["second", "it does not say what it used"],
        ["anthropic", undefined]
      ]
    )
    assert.strictEqual(standIns.second.seen[0]?.body.max_tokens, 16)
  })
)

it.live("an upstream at an address that may not be reached stops the start, or is not connected to", () =>
  Effect.gen(function* () {
    const stand = yield* standIn
    const standIns = { first: stand, second: stand, anthropic: stand }
    const at = (url: string) => upstreamsOf({ ...standIns, anthropic: { ...stand, url } })
    for (const url of ["https://169.254.169.254/v1", "http://10.0.0.1/v1", "https://10.0.0.1/v1"]) {
      const error = yield* Effect.flip(Effect.provide(checkUpstreams, upstreamsWith(at(url))))
      assert.strictEqual(error._tag, "OutboundRefused", url)
    }
    const refused = yield* Effect.flip(Effect.provide(checkUpstreams, upstreamsWith(at(stand.url), [])))
    assert.strictEqual(refused._tag, "OutboundRefused")
    assert.lengthOf(stand.seen, 0)
  })
)
