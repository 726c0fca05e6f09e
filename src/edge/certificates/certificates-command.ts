import * as Effect from "effect/Effect"
import { onStore } from "#src/cli/admin.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { json, out, say, table } from "#src/cli/output.ts"
import type { Certificate } from "./Certificates.ts"
import { listCertificates, renewCertificates } from "./overview.ts"

const time = (date: Date | undefined) => date?.toISOString() ?? "-"

const viewOf = (one: Certificate) => ({
  name: one.name,
  organizationId: one.orgId,
  state: one.state,
  issuer: one.issuer ?? null,
  expiresAt: one.expiresAt?.toISOString() ?? null,
  renewAt: one.renewAt?.toISOString() ?? null,
  nextLookAt: one.nextLookAt?.toISOString() ?? null,
  error: one.error ?? null
})

export const ls = (flags: { readonly json: boolean }) =>
  onStore(
    Effect.gen(function* () {
      const all = yield* listCertificates
      if (flags.json) return yield* json({ items: all.map(viewOf) })
      yield* out(
        table(
          ["NAME", "STATE", "ISSUER", "EXPIRES", "RENEWED FROM", "ERROR"],
          all.map((one) => [
            one.name,
            one.state,
            one.issuer ?? "-",
            time(one.expiresAt),
            time(one.renewAt),
            one.error === undefined ? "" : `${one.error.type}: ${one.error.message}`
          ])
        )
      )
    })
  )

export const renew = (flags: { readonly names: ReadonlyArray<string>; readonly json: boolean }) =>
  onStore(
    Effect.gen(function* () {
      const wanted = flags.names.map((name) => name.toLowerCase())
      const renewed = yield* renewCertificates(wanted)
      if (flags.json) yield* json({ renewed })
      else if (renewed.length > 0) {
        yield* say(
          `The control plane renews ${renewed.join(", ")}; svc admin certificates ls shows how it went`
        )
      }
      const others = wanted.filter((name) => !renewed.includes(name))
      if (others.length > 0) {
        return yield* failure(
          `There is no certificate of ${others.join(", ")}, or it is being seen to at this moment`,
          exitCodes.notFound
        )
      }
    })
  )
