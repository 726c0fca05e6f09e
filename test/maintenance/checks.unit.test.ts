/** Checks on resources that are made up. */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { GatewayKeys } from "#src/ai-gateways/GatewayKeys.ts"
import { Jobs } from "#src/backups/Jobs.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import { makeBackupsCheck } from "#src/maintenance/checks/backups.ts"
import { certificates } from "#src/maintenance/checks/certificates.ts"
import { drift } from "#src/maintenance/checks/drift.ts"
import { makeSecurityCheck } from "#src/maintenance/checks/security.ts"
import { versions } from "#src/maintenance/checks/versions.ts"
import type { Check, Look } from "#src/maintenance/look.ts"
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
  ...{ handledRetry: null, waitingOn: null },
  ...values
})

const told = (check: Check, ...resources: ReadonlyArray<ResourceRecord>) =>
  toldOf(check, {
    resources: resources.filter(({ deletionRequestedAt }) => deletionRequestedAt === null),
    leaving: resources.filter(({ deletionRequestedAt }) => deletionRequestedAt !== null)
  })

const toldOf = (check: Check, look: Partial<Look>) =>
  Effect.map(
    check({ orgId: "org", now, resources: [], elsewhere: [], leaving: [], destinations: [], ...look }),
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

describe("destinations of backups", () => {
  const far = "3f0f3c1e-0000-4000-8000-000000000001"
  const services = Layer.mergeAll(
    Layer.mock(Jobs, { list: () => Effect.succeed([]) }),
    Layer.mock(Ledger, { trouble: () => Effect.succeed(Option.none()) })
  )
  const destination = (status: "true" | "false" | "unknown") =>
    record({
      ...{ kind: "BackupDestination", uid: far },
      conditions: [
        {
          type: "Ready",
          status,
          reason: "Unreachable",
          message: "m",
          lastTransitionAt: at(0),
          observedGeneration: 1
        }
      ]
    })
  const user = record({
    ...{ kind: "Database", uid: "db" },
    spec: { region: "local", backup: { destinationIds: [far] } }
  })
  const cases: ReadonlyArray<readonly [string, Partial<Look>, ReadonlyArray<string>]> = [
    ["that work", { resources: [user], destinations: [destination("true")] }, []],
    [
      "that fail",
      { resources: [user], destinations: [destination("false")] },
      [`warning destination-failing:${far}`]
    ],
    [
      "that were not reached",
      { resources: [user], destinations: [destination("unknown")] },
      [`unknown destination-failing:${far}`]
    ],
    [
      "that only other environments use",
      { elsewhere: [user], destinations: [destination("false")] },
      [`unknown destination-failing:${far}`]
    ],
    ["that nobody uses", { destinations: [destination("false")] }, []]
  ]
  for (const [name, look, expected] of cases) {
    it.effect(name, () =>
      Effect.gen(function* () {
        const found = yield* toldOf(yield* makeBackupsCheck, look)
        assert.deepStrictEqual(found, expected)
      }).pipe(Effect.provide(services))
    )
  }
})

describe("the address of preview", () => {
  const services = Layer.mock(GatewayKeys, {})
  const preview = (status: ResourceRecord["status"]) =>
    record({ ...{ kind: "Environment", name: "preview", environment: null, spec: {} }, status })
  const cases: ReadonlyArray<readonly [string, ResourceRecord, ReadonlyArray<string>]> = [
    ["that everybody may see", preview({ address: "preview.example.com" }), ["info public-preview:uid"]],
    ["that is not there", preview({}), []],
    ["that nobody has looked at", preview(null), ["unknown public-preview:uid"]]
  ]
  for (const [name, environment, expected] of cases) {
    it.effect(name, () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* told(yield* makeSecurityCheck, environment), expected)
      }).pipe(Effect.provide(services))
    )
  }
})
