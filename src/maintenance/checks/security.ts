/** Settings that leave more open than they have to. */
import * as Effect from "effect/Effect"
import { AccessPolicy, accessModeOf } from "#schemas/access-policy.ts"
import { AiGateway } from "#schemas/ai-gateway.ts"
import { Database } from "#schemas/database.ts"
import { Domain } from "#schemas/domain.ts"
import { Environment } from "#schemas/environment.ts"
import { defaultEnvironment } from "#schemas/names.ts"
import { GatewayKeys } from "#src/ai-gateways/GatewayKeys.ts"
import type { Finding } from "../finding.ts"
import { type Check, dayMs, findingOf, ofKind, spanInWords, type Unknown, unknownOf } from "../look.ts"
import { protect, setHsts } from "../remedies.ts"

const unusedMs = 90 * dayMs
const oldPasswordMs = 365 * dayMs
/** A year, which browsers' lists ask for. */
const hstsSeconds = 31_536_000

const databases = ofKind(Database)
const domains = ofKind(Domain)
const gateways = ofKind(AiGateway)
const policies = ofKind(AccessPolicy)
const environments = ofKind(Environment)

export const makeSecurityCheck = Effect.gen(function* () {
  const keys = yield* GatewayKeys
  const check: Check = Effect.fnUntraced(function* ({ orgId, now, resources }) {
    const found: Array<Finding | Unknown> = []
    for (const { record, spec } of databases(resources)) {
      if (record.environment === defaultEnvironment && !record.protected)
        found.push(
          findingOf("security", "unprotected", record, {
            severity: "warning",
            summary: `The database "${record.name}" of ${defaultEnvironment} can be deleted by one command`,
            risk: "A mistake, or a stolen key, takes its data.",
            evidence: { protected: false },
            remedy: protect(record)
          })
        )
      const age = now - record.createdAt.getTime()
      if (spec.credentialVersion === 1 && age > oldPasswordMs)
        found.push(
          findingOf("security", "old-password", record, {
            severity: "info",
            summary: `The password of the database "${record.name}" has been the same for ${spanInWords(age)}`,
            risk: "Whoever has ever seen it can still connect.",
            evidence: { since: record.createdAt.toISOString() },
            remedy: null
          })
        )
    }
    for (const { record, spec } of domains(resources)) {
      if (record.environment !== defaultEnvironment || (spec.hstsSeconds ?? 0) > 0) continue
      found.push(
        findingOf("security", "no-hsts", record, {
          severity: "info",
          summary: `Browsers may open "${record.name}" without https first`,
          risk: "The first request of a visitor can be read and changed on its way.",
          evidence: { hstsSeconds: 0 },
          remedy: setHsts(record, hstsSeconds)
        })
      )
    }
    for (const { record, spec } of gateways(resources)) {
      if (!spec.redactPrompts)
        found.push(
          findingOf("security", "prompts-kept", record, {
            severity: "info",
            summary: `Prompts and answers of the gateway "${record.name}" are kept in logs and tables`,
            risk: "What people write to it can be read by whoever reads these.",
            evidence: { redactPrompts: false },
            remedy: null
          })
        )
      const unused = (yield* keys.list(orgId, record.uid)).filter(
        ({ revokedAt, lastUsedAt, createdAt }) =>
          revokedAt === null && now - (lastUsedAt ?? createdAt).getTime() >= unusedMs
      )
      // Members read findings, and only admins may read keys: they are counted, and none is told.
      if (unused.length > 0)
        found.push(
          findingOf("security", "unused-keys", record, {
            severity: "warning",
            summary: `${unused.length === 1 ? "A key" : `${unused.length} keys`} of the gateway "${record.name}" ${unused.length === 1 ? "has" : "have"} not been used for ${spanInWords(unusedMs)}`,
            risk: "A key that nobody needs can still be stolen and spent from.",
            evidence: { keys: unused.length },
            remedy: null,
            basis: unused.map(({ id }) => id).join(" ")
          })
        )
    }
    const policy = policies(resources).at(0)
    const preview = environments(resources).find(({ record }) => record.name === "preview")
    if (preview !== undefined && accessModeOf(policy?.spec, "preview") === "public") {
      if (preview.status === undefined) found.push(unknownOf("public-preview", preview.record))
      else if (preview.status.address !== undefined)
        found.push(
          findingOf("security", "public-preview", preview.record, {
            severity: "info",
            summary: "Everybody may see the environment preview at its address",
            risk: "Work that is not finished, and data of previews, can be found by strangers.",
            evidence: { mode: "public" },
            remedy: null
          })
        )
    }
    return found
  })
  return check
})
