/**
 * The control plane, for the figure of what authentication costs. With BENCH_AUTH=off everybody is the admin of the
 * organization that BENCH_ORG names, and nobody is counted: the same requests without asking who sends them.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Access } from "#src/access/Access.ts"
import { RateLimits } from "#src/access/RateLimits.ts"
import { AppConfig } from "#src/config.ts"

if (process.env["BENCH_AUTH"] === "off") {
  const identity = Option.some({
    credentialId: "00000000-0000-7000-8000-000000000000",
    userId: null,
    lastUsedAt: null,
    provedAt: null,
    grant: undefined,
    organization: {
      id: process.env["BENCH_ORG"] ?? "",
      slug: "main",
      role: "admin" as const,
      billingStatus: "active"
    }
  })
  const access = Access.of({
    identify: () => Effect.succeed(identity),
    organizations: () => Effect.succeed([]),
    describe: () => Effect.succeed({ keyName: null, grantExpiresAt: null, user: null }),
    used: () => Effect.void
  })
  const taken = { allowed: true, limit: 1, remaining: 1, retryAfter: 0 }
  const limits = RateLimits.of({ take: () => Effect.succeed(taken) })
  Object.defineProperty(Access, "layer", { value: Layer.succeed(Access, access) })
  Object.defineProperty(RateLimits, "layer", { value: Layer.succeed(RateLimits, limits) })
}

// Loaded now, so that it finds what was put in place above.
const { controlPlane, telemetry } = await import("#src/main.ts")
const stop = new AbortController()
process.once("SIGTERM", () => stop.abort())
await Effect.runPromiseExit(
  Layer.launch(controlPlane.pipe(Layer.provide(telemetry), Layer.provide(AppConfig.layer))),
  { signal: stop.signal }
)
