/** Whether the certificates of servers and domains are renewed in time, and domains lead here. */
import * as Effect from "effect/Effect"
import { Cache } from "#schemas/cache.ts"
import { Database } from "#schemas/database.ts"
import { DatabaseBranch } from "#schemas/database-branch.ts"
import { Domain } from "#schemas/domain.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import type { Finding } from "../finding.ts"
import { type Check, dayMs, findingOf, ofKind, spanInWords, type Unknown, unknownOf } from "../look.ts"
import { checkDomain, retry } from "../remedies.ts"

/** They are renewed before: what has less time left was not. */
const soonMs = 14 * dayMs
const urgentMs = 3 * dayMs
/** DNS that somebody is about to change takes so long. */
const pendingMs = dayMs

/** Reasons for which a domain is looked at again at once. */
const domainReasons: ReadonlySet<string> = new Set([
  "CertificateFailed",
  "CertificateRefused",
  "CertificateRenewalFailed",
  "DnsMoved",
  "DnsUnknown",
  "NotServed"
])

const expiry = (
  record: ResourceRecord,
  at: string | null | undefined,
  now: number
): ReadonlyArray<Finding | Unknown> => {
  const left = Date.parse(at ?? "") - now
  if (at === null || at === undefined || Number.isNaN(left)) return [unknownOf("certificate-expires", record)]
  if (left >= soonMs) return []
  const isDomain = record.kind === Domain.name
  return [
    findingOf("certificates", "certificate-expires", record, {
      severity: left < urgentMs ? "critical" : "warning",
      summary:
        left <= 0
          ? `The certificate of "${record.name}" has expired`
          : `The certificate of "${record.name}" expires in ${spanInWords(left)} and was not renewed`,
      risk: "Clients refuse to connect once it has expired.",
      evidence: { expiresAt: at },
      remedy: isDomain ? checkDomain(record) : retry(record)
    })
  ]
}

const servers = [ofKind(Database), ofKind(DatabaseBranch), ofKind(Cache)]
const domains = ofKind(Domain)

export const certificates: Check = ({ now, resources }) =>
  Effect.sync(() => [
    ...servers.flatMap((typed) =>
      typed(resources).flatMap(({ record, status }) => expiry(record, status?.certificateExpiresAt, now))
    ),
    ...domains(resources).flatMap(({ record, status }) => [
      ...expiry(record, status?.certificateExpiresAt, now),
      ...trouble(record, status?.verificationErrors ?? null, now)
    ])
  ])

const trouble = (record: ResourceRecord, errors: string | null, now: number): ReadonlyArray<Finding> => {
  const told = record.conditions.find(({ reason }) => domainReasons.has(reason))
  const pending =
    record.conditions.some(({ type, status }) => type === "Ready" && status === "false") &&
    now - record.phaseSince.getTime() > pendingMs
  if (told === undefined && !pending) return []
  const reason = told?.reason ?? record.conditions.find(({ type }) => type === "Ready")?.reason ?? ""
  return [
    findingOf("certificates", "domain", record, {
      severity: told === undefined ? "info" : "warning",
      summary: `The domain "${record.name}" is not served as it should be: ${told?.message ?? errors ?? "it waits for DNS"}`,
      risk: "Visitors of the domain see an error, or somebody else's page.",
      evidence: { reason, since: record.phaseSince.toISOString(), verificationErrors: errors },
      remedy: checkDomain(record),
      basis: reason
    })
  ]
}
