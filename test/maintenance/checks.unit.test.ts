/** Checks that look at nothing but resources. */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { certificates } from "#src/maintenance/checks/certificates.ts"
import { drift } from "#src/maintenance/checks/drift.ts"
import { versions } from "#src/maintenance/checks/versions.ts"
import type { Check } from "#src/maintenance/look.ts"
import type { ResourceRecord } from "#src/store/records.ts"

const hourMs = 3_600_000
const dayMs = 24 * hourMs
const now = Date.parse("2026-06-15T12:00:00Z")
const at = (ms: number) => new Date(now + ms).toISOString()

const record = (values: Partial<ResourceRecord>): ResourceRecord => ({
  ...{ orgId: "org", uid: "uid", kind: "Cache", projectId: "project", project: "shop", name: "one" },
  ...{ environment: "production", parentUid: null, spec: { region: "local" }, generation: 1, status: null },
  ...{ observedGeneration: 1, phase: "ready", phaseSince: new Date(now), conditions: [], differences: [] },
  ...{ revision: "1", protected: false, managedBy: "api", deletionRequestedAt: null, attempt: 0 },
  ...{ createdAt: new Date(now), updatedAt: new Date(now), nextAttemptAt: null, lastError: null },
  ...{ handledRetry: null },
  ...values
})

const told = (check: Check, ...resources: ReadonlyArray<ResourceRecord>) =>
  Effect.map(
    check({
      orgId: "org",
      now,
      resources: resources.filter(({ deletionRequestedAt }) => deletionRequestedAt === null),
      elsewhere: [],
      leaving: resources.filter(({ deletionRequestedAt }) => deletionRequestedAt !== null),
      destinations: []
    }),
    (judged) =>
      judged.map((one) => ("unknown" in one ? `unknown ${one.unknown}` : `${one.severity} ${one.key}`))
  )

const cache = (certificateExpiresAt: string, server = "redis 7.0.15") =>
  record({ status: { host: "h", port: 1, memoryMb: 256, server, certificateExpiresAt } })
const domain = (reason: string, status: "true" | "false" = "true", age = 0) =>
  record({
    ...{ kind: "Domain", name: "www.example.com", spec: {}, phaseSince: new Date(now - age) },
    conditions: [
      { type: "Ready", status, reason, message: "m", lastTransitionAt: at(-age), observedGeneration: 1 }
    ],
    status: { state: "active", verificationErrors: null, certificateExpiresAt: at(60 * dayMs) }
  })

describe("certificates", () => {
  const cases: ReadonlyArray<readonly [string, ResourceRecord, ReadonlyArray<string>]> = [
    ["with three weeks left", cache(at(21 * dayMs)), []],
    ["with two weeks left", cache(at(14 * dayMs)), []],
    ["with less", cache(at(14 * dayMs - 1)), ["warning certificate-expires:uid"]],
    ["with less than three days left", cache(at(3 * dayMs - 1)), ["critical certificate-expires:uid"]],
    ["that have expired", cache(at(-hourMs)), ["critical certificate-expires:uid"]],
    ["that nobody has seen", record({}), ["unknown certificate-expires:uid"]],
    ["that could not be read", cache(""), ["unknown certificate-expires:uid"]],
    ["of a domain that is served", domain("Converged"), []],
    ["whose renewal fails", domain("CertificateRenewalFailed"), ["warning domain:uid"]],
    ["of a domain that waits for DNS", domain("PendingDns", "false", hourMs), []],
    ["of one that waits for a day", domain("PendingDns", "false", dayMs + 1), ["info domain:uid"]]
  ]
  for (const [name, resource, expected] of cases) {
    it.effect(name, () =>
      Effect.map(told(certificates, resource), (found) => assert.deepStrictEqual(found, expected))
    )
  }
})

describe("drift", () => {
  const condition = (
    type: "Ready" | "Stalled" | "Drifted" | "Paused",
    status: "true" | "false",
    reason: string,
    age: number
  ) =>
    record({
      conditions: [{ type, status, reason, message: "m", lastTransitionAt: at(-age), observedGeneration: 1 }],
      differences: type === "Drifted" ? [{ field: "/sku", message: "m" }] : []
    })
  const cases: ReadonlyArray<readonly [string, ResourceRecord, ReadonlyArray<string>]> = [
    ["nothing", record({}), []],
    ["stalled", condition("Stalled", "true", "NoProgress", 0), ["critical stuck:uid"]],
    ["not stalled", condition("Stalled", "false", "Advancing", dayMs), []],
    ["not ready for a moment", condition("Ready", "false", "ServerDown", hourMs), []],
    ["not ready for an hour", condition("Ready", "false", "ServerDown", hourMs + 1), ["warning stuck:uid"]],
    ["on its way for long", condition("Ready", "false", "ServerStarting", dayMs), []],
    ["an unknown reason", condition("Ready", "false", "Unheard", dayMs), ["warning stuck:uid"]],
    ["drifted for a moment", condition("Drifted", "true", "DriftFound", hourMs - 1), []],
    ["drifted for an hour", condition("Drifted", "true", "DriftFound", hourMs), ["warning drifted:uid"]],
    ["paused for six days", condition("Paused", "true", "PausedByUser", 6 * dayMs), []],
    ["paused for a week", condition("Paused", "true", "PausedByUser", 7 * dayMs), ["info paused:uid"]],
    ["being deleted", record({ deletionRequestedAt: new Date(now - hourMs + 1) }), []],
    [
      "being deleted for an hour",
      record({ deletionRequestedAt: new Date(now - hourMs) }),
      ["warning not-deleted:uid"]
    ]
  ]
  for (const [name, resource, expected] of cases) {
    it.effect(name, () =>
      Effect.map(told(drift, resource), (found) => assert.deepStrictEqual(found, expected))
    )
  }
})

describe("versions", () => {
  const postgres = (uid: string, server: string) =>
    record({
      ...{ kind: "Database", uid },
      status: {
        ...{ host: "h", port: 1, dbName: "app", user: "app", server },
        certificateExpiresAt: at(100 * dayMs)
      }
    })
  const cases: ReadonlyArray<readonly [string, ReadonlyArray<ResourceRecord>, ReadonlyArray<string>]> = [
    ["the newest", [postgres("a", "PostgreSQL 18.4"), postgres("b", "PostgreSQL 18.4")], []],
    [
      "older than another one",
      [postgres("a", "PostgreSQL 18.4"), postgres("b", "PostgreSQL 18.3 (Debian)")],
      ["info old-version:b"]
    ],
    ["of another major version", [postgres("a", "PostgreSQL 18.4"), postgres("b", "PostgreSQL 17.9")], []],
    ["with known faults", [postgres("a", "PostgreSQL 17.6")], ["warning old-version:a"]],
    [
      "that tells no version",
      [postgres("a", "PostgreSQL"), postgres("b", "")],
      ["unknown old-version:a", "unknown old-version:b"]
    ],
    ["of redis", [cache(at(100 * dayMs), "redis 6.0.1")], []]
  ]
  for (const [name, resources, expected] of cases) {
    it.effect(name, () =>
      Effect.map(told(versions, ...resources), (found) => assert.deepStrictEqual(found, expected))
    )
  }
})
