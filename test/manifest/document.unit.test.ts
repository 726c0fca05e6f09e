import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Result from "effect/Result"
import { signalNames } from "#schemas/signal.ts"
import { unavailableSections } from "#schemas/unavailable-sections.ts"
import { toPath } from "#src/api/source-location.ts"
import { checkManifest, parseManifest } from "#src/manifest/parse.ts"
import { makePlan } from "#src/manifest/plan.ts"
import {
  alert,
  base,
  cache,
  cron,
  database,
  document,
  everything,
  gateway,
  payments,
  queue
} from "./samples.ts"

/** Pointers of the faults, from the project on. */
const pointers = (project: object) => {
  const checked = checkManifest(document(project), () => ({}))
  return Result.isSuccess(checked)
    ? []
    : checked.failure.map(({ pointer }) => pointer.replace(/^\/projects\/0/, ""))
}

describe("the manifest document", () => {
  it("takes every section with every field", () => {
    const parsed = parseManifest(JSON.stringify(document(everything)))
    const value: unknown = Result.isSuccess(parsed) ? parsed.success.manifest : parsed.failure
    assert.deepStrictEqual(value, document(everything))
  })

  it("an unknown key is a fault at every level", () => {
    const strange = { colour: "red" }
    const cases: ReadonlyArray<readonly [object, string]> = [
      [strange, "/colour"],
      [{ git: { repo: "a/b", ...strange } }, "/git/colour"],
      [{ environments: { staging: strange } }, "/environments/staging/colour"],
      [{ queues: [{ ...queue, consumer: { path: "/", ...strange } }] }, "/queues/0/consumer/colour"],
      [{ crons: [{ ...cron, retry: strange }] }, "/crons/0/retry/colour"],
      [{ databases: [{ ...database, backup: strange }] }, "/databases/0/backup/colour"],
      [{ alerts: [{ ...alert, scope: strange }] }, "/alerts/0/scope/colour"],
      [{ access: strange }, "/access/colour"],
      [{ budget: { monthlyCapUsd: null, ...strange } }, "/budget/colour"],
      [{ maintenance: { autoRemediation: strange } }, "/maintenance/autoRemediation/colour"]
    ]
    for (const [project, pointer] of cases) assert.deepStrictEqual(pointers(project), [pointer])
  })

  it("what a section needs is required, by name", () => {
    const cases: ReadonlyArray<readonly [object, ReadonlyArray<string>]> = [
      [{ git: {} }, ["/git/repo"]],
      [{ storage: [{}] }, ["/storage/0/name"]],
      [{ queues: [{ consumer: {} }] }, ["/queues/0/name", "/queues/0/consumer/path"]],
      [{ crons: [{}] }, ["/crons/0/name", "/crons/0/environment", "/crons/0/schedule"]],
      [{ databases: [{}] }, ["/databases/0/name", "/databases/0/sku", "/databases/0/region"]],
      [{ caches: [{}] }, ["/caches/0/name", "/caches/0/region"]],
      [{ realtime: [{}] }, ["/realtime/0/name"]],
      [
        { aiGateways: [{}] },
        ["/aiGateways/0/name", "/aiGateways/0/allowedModels", "/aiGateways/0/monthlyBudgetUsd"]
      ],
      [
        { customerPayments: [{}] },
        ["secretKey", "webhookSecret", "credentialScopes", "allowedRedirectOrigins"].map(
          (field) => `/customerPayments/0/${field}`
        )
      ],
      [{ databaseBranch: {} }, ["/databaseBranch/sourceEnvironment", "/databaseBranch/sourceDatabase"]],
      [{ alerts: [{}] }, ["/alerts/0/name", "/alerts/0/severity", "/alerts/0/scope"]]
    ]
    for (const [project, missing] of cases) assert.sameMembers([...pointers(project)], [...missing])
    const empty = checkManifest({}, () => ({}))
    assert.deepStrictEqual(Result.isFailure(empty) && empty.failure.map(({ pointer }) => pointer), [
      "/version",
      "/organization"
    ])
  })

  it("patterns and bounds hold at their edges", () => {
    const one = (section: string, entry: object, field: string, value: unknown) =>
      pointers({ [section]: [{ ...entry, [field]: value }] }).length === 0
    const within = (
      check: (value: unknown) => boolean,
      good: ReadonlyArray<unknown>,
      bad: ReadonlyArray<unknown>
    ) => {
      for (const value of good) assert.isTrue(check(value), `${JSON.stringify(value)} is taken`)
      for (const value of bad) assert.isFalse(check(value), `${JSON.stringify(value)} is refused`)
    }
    const project = (field: string) => (value: unknown) => pointers({ [field]: value }).length === 0
    within(project("slug"), ["ab", `a${"b".repeat(61)}`], ["a", `a${"b".repeat(62)}`, "1a", "Ab", "a_b", 7])
    within(project("runtimeClass"), ["scale-to-zero", "always-on"], ["sometimes", null])
    within(
      (repo) => pointers({ git: { repo } }).length === 0,
      ["a/b", "my.org/my_app-1"],
      ["a", "a/b/c", "https://example.com/a/b", "a/ b"]
    )
    within(
      project("env"),
      [{ A: "" }, { [`A${"B".repeat(63)}`]: "x" }],
      [{ [`A${"B".repeat(64)}`]: "x" }, { a: "x" }, { A: 1 }, { A: null }, ["A"]]
    )
    within(
      project("environments"),
      [{ a: {} }, { [`a${"b".repeat(38)}`]: {} }],
      [{ [`a${"b".repeat(39)}`]: {} }, { A: {} }, { a: null }, { production: {} }, { preview: {} }]
    )
    within(
      project("domains"),
      [["a.example"], [`${"a".repeat(63)}.example.com`]],
      [
        ["localhost"],
        ["A.example"],
        [`${"a".repeat(64)}.example.com`],
        ["-a.example"],
        ["a.b1"],
        ["a..example"]
      ]
    )
    const target = (path: string) => ({ kind: "http", path })
    within(
      (it) => one("crons", cron, "target", it),
      [target("/"), target("/a/b"), { kind: "queue", queue: "jobs" }],
      [target("//host/a"), target("a"), { kind: "queue", queue: "X" }, { ...target("/"), method: "GET" }]
    )
    const retry = (field: string) => (value: unknown) => one("crons", cron, "retry", { [field]: value })
    within(retry("maxAttempts"), [1, 10], [0, 11, 1.5, "3"])
    within(retry("initialDelaySeconds"), [1, 3_600], [0, 3_601])
    within(retry("maxDelaySeconds"), [1, 86_400], [0, 86_401])
    within((it) => one("crons", cron, "concurrencyPolicy", it), ["allow", "skip", "replace"], ["queue"])
    within((it) => one("databases", database, "replicas", it), [0, 2], [1, 3, "2"])
    within((it) => one("caches", cache, "sku", it), ["cache-n1", "cache-s1", "cache-s2"], ["cache-xl", null])
    within((it) => one("caches", cache, "persistence", it), ["none", "aof"], ["rdb"])
    within((it) => one("realtime", { name: "rooms" }, "region", it), ["global"], ["local"])
    within((it) => one("aiGateways", gateway, "monthlyBudgetUsd", it), [0, 12.5], [-1, "12"])
    within((it) => one("alerts", alert, "severity", it), ["info", "warning", "critical"], ["fatal"])
    within((signal) => one("alerts", alert, "condition", { signal }), signalNames, [
      "cpu",
      "database.query_latency_p75_ms"
    ])
    within(
      (it) => one("alerts", alert, "channels", it),
      [
        [
          { kind: "dashboard", destination: null },
          { kind: "mail", destination: "ops@example.com" },
          { kind: "mail", destination: null },
          { kind: "webhook", destination: null }
        ]
      ],
      [
        [{ kind: "dashboard" }],
        [{ kind: "sms", destination: null }],
        [{ kind: "mail", destination: "nobody" }],
        [{ kind: "webhook", destination: "https://example.com" }]
      ]
    )
    within(
      (previewMode) => pointers({ access: { previewMode } }).length === 0,
      ["inherit", "public"],
      ["none"]
    )
    within((mode) => pointers({ access: { mode } }).length === 0, ["organization"], ["inherit"])
    within(
      (schedule) => pointers({ maintenance: { schedule } }).length === 0,
      ["hourly", "daily", "weekly"],
      ["yearly"]
    )
  })

  it("names that are taken twice, reserved or an id are refused, and name the first place", () => {
    const two = (section: string, first: object, second: object) => pointers({ [section]: [first, second] })
    assert.deepStrictEqual(two("caches", cache, { ...cache, environment: "production" }), ["/caches/1/name"])
    assert.deepStrictEqual(two("caches", cache, { ...cache, environment: "preview" }), [])
    assert.deepStrictEqual(two("alerts", alert, alert), ["/alerts/1/name"])
    assert.deepStrictEqual(two("customerPayments", payments, payments), ["/customerPayments/1"])
    const domain = { ...base, domains: ["www.example.com"] }
    const everywhere = checkManifest(
      { ...document({}), projects: [domain, { ...domain, slug: "beta" }] },
      () => ({})
    )
    assert.deepStrictEqual(
      Result.isFailure(everywhere) && everywhere.failure.map(({ pointer, message }) => [pointer, message]),
      [["/projects/1/domains/0", '"www.example.com" is named twice; the first is at /projects/0/domains/0']]
    )
    assert.deepStrictEqual(pointers({ slug: "api" }), ["/slug"])
    assert.deepStrictEqual(pointers({ slug: "abcdef01-0000-7000-8000-000000000000" }), ["/slug"])
  })

  it("references that lead nowhere are refused where the manifest tells of their targets", () => {
    const dead = { ...queue, deadLetterQueue: "dead" }
    assert.deepStrictEqual(pointers({ queues: [dead, { name: "dead", environment: "preview" }] }), [
      "/queues/0/deadLetterQueue"
    ])
    assert.deepStrictEqual(pointers({ queues: [dead, { name: "dead" }] }), [])
    assert.deepStrictEqual(pointers({ queues: [{ ...queue, deadLetterQueue: "jobs" }] }), [
      "/queues/0/deadLetterQueue"
    ])
    const scope = (fields: object) => ({ alerts: [{ ...alert, scope: fields }] })
    assert.deepStrictEqual(pointers({ ...scope({ environment: "qa" }), environments: { staging: {} } }), [
      "/alerts/0/scope/environment"
    ])
    assert.deepStrictEqual(pointers({ ...scope({ environment: "preview" }), environments: {} }), [])
    assert.deepStrictEqual(pointers({ ...scope({ cron: "nightly" }), crons: [] }), ["/alerts/0/scope/cron"])
    assert.deepStrictEqual(pointers(scope({ cron: "nightly" })), [])
    const branch = { sourceEnvironment: "preview", sourceDatabase: "main" }
    assert.deepStrictEqual(pointers({ databaseBranch: branch, databases: [database] }), [
      "/databaseBranch/sourceDatabase"
    ])
    assert.deepStrictEqual(pointers({ databaseBranch: branch }), [])
  })

  it("every section that is not available yet blocks the plan at its place in the source", () => {
    const known = parseManifest(JSON.stringify(document({ ...everything, env: {} }), null, 2))
    if (Result.isFailure(known)) throw new Error(JSON.stringify(known.failure))
    const { manifest, locate } = known.success
    const { blockers } = makePlan(manifest, [], {
      prune: false,
      confirm: [],
      fingerprint: (text) => text,
      regions: ["local"]
    })
    const sections = blockers.filter(({ pointer }) => pointer.split("/").length === 4)
    assert.sameMembers(
      sections.map(({ pointer }) => pointer),
      unavailableSections.map((section) => `/projects/0/${section}`)
    )
    for (const { code, pointer } of sections) {
      assert.strictEqual(code, "not_available")
      const { line, column } = locate(toPath(pointer))
      assert.isDefined(line)
      assert.strictEqual(column, 7)
    }
  })

  it.each([
    ["quickstart.yaml", ["Project", "EnvVariables", "Database", "Cache"]],
    ["app/svc.manifest.yaml", ["Project", "Database", "Cache", "Queue", "Cron"]],
    ["shop.yaml", ["Environment", "Database", "DatabaseBranch", "Cache", "Queue", "Cron"]]
  ])("the example %s is taken as it is", (name, kinds) => {
    const parsed = parseManifest(readFileSync(new URL(`../../examples/${name}`, import.meta.url), "utf8"))
    if (Result.isFailure(parsed)) throw new Error(JSON.stringify(parsed.failure))
    const { manifest } = parsed.success
    const plan = makePlan(manifest, [], {
      prune: false,
      confirm: [],
      fingerprint: (text) => text,
      regions: ["local"]
    })
    assert.deepStrictEqual(plan.blockers, [])
    assert.includeMembers(
      plan.changes.map(({ kind }) => kind),
      kinds
    )
  })
})
