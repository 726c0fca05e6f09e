import * as fs from "node:fs"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { AppConfig } from "#src/config.ts"
import { checkSettings, features } from "#src/features.ts"

const read = (env: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const own = yield* Effect.promise(() => Promise.all(features.map((feature) => feature.settings())))
    const ofFeatures = yield* Effect.forEach(own, (config) => config)
    const all: Readonly<Record<string, unknown>> = Object.assign({}, yield* AppConfig, ...ofFeatures)
    return all
  }).pipe(Effect.provide(AppConfig.layerFrom(env)))

/** What `VAR=` comes to. */
const emptyMeans: Readonly<Record<string, "not set" | "none" | "refused">> = {
  SVC_DATA_DIR: "not set",
  SVC_HOST: "not set",
  SVC_PORT: "not set",
  SVC_METRICS_PORT: "not set",
  SVC_PUBLIC_URL: "not set",
  SVC_DATABASE_URL: "not set",
  SVC_ENCRYPTION_KEYS: "not set",
  SVC_BILLING: "not set",
  SVC_ROLES: "refused",
  SVC_ENGINE_THREAD: "not set",
  SVC_REGION: "not set",
  SVC_MANAGED_HOST: "not set",
  SVC_SERVICES_ADDRESS: "not set",
  SVC_ENVIRONMENT_RANGE: "not set",
  SVC_LOCAL_API: "not set",
  SVC_MANAGED_PORTS: "not set",
  SVC_SERVER_LIMITS: "not set",
  SVC_RATE_LIMIT: "not set",
  SVC_ROW_SECURITY: "not set",
  SVC_OUTBOUND_ALLOW: "none",
  SVC_OTLP_URL: "not set",
  SVC_LOG_FORMAT: "not set",
  SVC_LOG_LEVEL: "not set",
  SVC_SMTP_URL: "not set",
  SVC_MAIL_FROM: "not set",
  SVC_MAIL_DIR: "not set",
  SVC_SIGN_UP: "not set",
  SVC_SIGN_IN_RATE_LIMIT: "not set",
  SVC_AGENT_RATE_LIMIT: "not set",
  SVC_AGENT_REDIRECT_SCHEMES: "not set",
  SVC_OIDC_PROVIDERS: "not set",
  SVC_PROXIES: "not set",
  SVC_CATALOG: "not set",
  SVC_CONTAINER_SOCKET: "not set",
  DOCKER_HOST: "not set",
  SVC_REGISTRIES: "none",
  SVC_SANDBOX_RUNTIME: "not set",
  SVC_APP_RUNTIME: "not set",
  SVC_EXECUTION_FIREWALL: "not set",
  SVC_CONTAINER_USERNS: "not set",
  SVC_EXECUTION_RETENTION_DAYS: "not set",
  SVC_EXECUTION_IMAGE_DAYS: "not set",
  SVC_EXECUTION_MEMORY_MB: "not set",
  SVC_ORG_EXECUTIONS: "not set",
  SVC_DEPLOYMENT_RETENTION_DAYS: "not set",
  SVC_BUILD_IMAGE: "none",
  SVC_UPLOAD_MB: "not set",
  SVC_GIT_POLL_SECONDS: "not set",
  SVC_SPEED_EVENTS_PER_DAY: "not set",
  SVC_SPEED_BYTES_PER_DAY: "not set",
  SVC_UPLOADS_MB: "not set",
  SVC_BUILD_CACHES_MB: "not set",
  SVC_BUILD_FREE_MB: "not set",
  SVC_APPS_DOMAIN: "not set",
  SVC_EDGE_HOST: "not set",
  SVC_EDGE_HTTPS_PORT: "not set",
  SVC_EDGE_HTTP_PORT: "not set",
  SVC_EDGE_PUBLIC_HTTPS_PORT: "not set",
  SVC_EDGE_ADDRESSES: "not set",
  SVC_EDGE_PROXY_PROTOCOL: "not set",
  SVC_EDGE_TRUSTED_PROXIES: "not set",
  SVC_EDGE_ORIGIN_CA_FILE: "not set",
  SVC_EDGE_MAX_CONNECTIONS: "not set",
  SVC_EDGE_ADDRESS_CONNECTIONS: "not set",
  SVC_EDGE_HEADER_SECONDS: "not set",
  SVC_EDGE_IDLE_SECONDS: "not set",
  SVC_EDGE_WEBSOCKET_IDLE_SECONDS: "not set",
  SVC_EDGE_CONNECT_SECONDS: "not set",
  SVC_EDGE_HOLD_SECONDS: "not set",
  SVC_EDGE_HELD_REQUESTS: "not set",
  SVC_DNS_SERVERS: "not set",
  SVC_ORG_DNS_QUESTIONS: "not set",
  SVC_ACME_DIRECTORY: "not set",
  SVC_ACME_EMAIL: "not set",
  SVC_ACME_EAB: "not set",
  SVC_ACME_CA_FILE: "not set",
  SVC_ACME_DNS: "not set",
  SVC_ORG_CERTIFICATE_ORDERS: "not set",
  SVC_APPS_CERTIFICATE: "not set",
  SVC_APPS_CERTIFICATE_KEY: "not set",
  SVC_AI_UPSTREAMS: "not set",
  SVC_AI_GATEWAY_RATE_LIMIT: "not set",
  SVC_AI_KEY_RATE_LIMIT: "not set",
  SVC_AI_GATEWAY_CONCURRENCY: "not set",
  SVC_AI_KEY_CONCURRENCY: "not set",
  SVC_STRIPE_URL: "not set",
  SVC_SPEED_BATCHES_PER_MINUTE: "not set",
  SVC_TELEMETRY_KEY: "not set",
  SVC_TELEMETRY_PER_MINUTE: "not set",
  SVC_TELEMETRY_NETWORK_PER_MINUTE: "not set",
  SVC_PAYMENTS_COMPARE_SECONDS: "not set",
  SVC_QUEUE_MAX_MESSAGES: "not set",
  SVC_QUEUE_MAX_MB: "not set",
  SVC_ORG_QUEUES_MAX_MESSAGES: "not set",
  SVC_ORG_QUEUES_MAX_MB: "not set",
  SVC_METRICS_RESOURCES: "not set",
  SVC_METRICS_SECONDS: "not set"
}
const fieldOf = {
  SVC_OUTBOUND_ALLOW: "outboundAllow",
  SVC_REGISTRIES: "registries",
  SVC_BUILD_IMAGE: "buildImages"
} as const

it.effect.each(Object.entries(emptyMeans))("%s set to nothing means: %s", ([name, meaning]) =>
  Effect.gen(function* () {
    const defaults = yield* read({})
    if (meaning === "refused") {
      const said = String(yield* Effect.flip(read({ [name]: "" })))
      assert.include(said, name)
      assert.notInclude(said, "\n")
      return
    }
    const settings = yield* read({ [name]: "" })
    if (meaning === "not set") return assert.deepStrictEqual(settings, defaults)
    const field = Object.entries(fieldOf).find(([variable]) => variable === name)?.[1]
    assert.isDefined(field)
    assert.notDeepEqual(defaults[field!], [])
    assert.deepStrictEqual(settings, { ...defaults, [field!]: [] })
  })
)

it("every variable that is read is in the table of settings, and here", () => {
  const folder = new URL("../src/", import.meta.url)
  const source = ["config.ts", ...fs.globSync("**/settings.ts", { cwd: folder })]
    .map((file) => fs.readFileSync(new URL(file, folder), "utf8"))
    .join("\n")
  const variables = [...source.matchAll(/"(SVC_[A-Z_]+|DOCKER_HOST)"/g)].map(([, name]) => name!)
  assert.sameMembers(Object.keys(emptyMeans), [...new Set(variables)])
  const table = fs.readFileSync(new URL("../docs/operating/settings.md", import.meta.url), "utf8")
  for (const name of variables) assert.include(table, `\`${name}\``)
})

it.effect("what only some roles are is refused, and both are taken in any order", () =>
  Effect.gen(function* () {
    assert.include(String(yield* Effect.flip(read({ SVC_ROLES: "api,worker" }))), "SVC_ROLES")
    assert.deepStrictEqual((yield* read({ SVC_ROLES: "engine, api" })).roles, new Set(["api", "engine"]))
  })
)

it.effect("the served region is an id, and local unless something else is said", () =>
  Effect.gen(function* () {
    assert.strictEqual((yield* read({})).region, "local")
    assert.strictEqual((yield* read({ SVC_REGION: "oslo-2" })).region, "oslo-2")
    for (const wrong of ["Oslo", "-oslo", "oslo_2", "o".repeat(65)])
      assert.include(String(yield* Effect.flip(read({ SVC_REGION: wrong }))), "SVC_REGION")
  })
)

it.effect(
  "containers reach services at one address and by a name that means the same outside, if there is one",
  () =>
    Effect.gen(function* () {
      const of = (env: Readonly<Record<string, string>>) => Effect.map(read(env), ({ services }) => services)
      const usual = { name: "services.svc.internal", address: "198.19.255.1" }
      assert.deepStrictEqual(yield* of({}), usual)
      for (const here of ["localhost", "db.localhost", "10.0.0.5", "::1"])
        assert.deepStrictEqual(yield* of({ SVC_MANAGED_HOST: here }), usual)
      assert.deepStrictEqual(
        yield* of({ SVC_MANAGED_HOST: "data.example.com", SVC_SERVICES_ADDRESS: "10.255.0.1" }),
        { name: "data.example.com", address: "10.255.0.1" }
      )
      // Where no rules are set, nothing leads there.
      assert.isUndefined(yield* of({ SVC_SERVICES_ADDRESS: "off" }))
      assert.isUndefined(yield* of({ SVC_EXECUTION_FIREWALL: "off" }))
      for (const wrong of ["127.0.0.2", "169.254.1.1", "0.0.0.0", "fd00::1", "on"])
        assert.include(
          String(yield* Effect.flip(of({ SVC_SERVICES_ADDRESS: wrong }))),
          "SVC_SERVICES_ADDRESS"
        )
    })
)

it.effect("a process may be told where the API of another one of its machine listens", () =>
  Effect.gen(function* () {
    const of = (place: string) => Effect.map(read({ SVC_LOCAL_API: place }), ({ localApi }) => localApi)
    assert.isUndefined(yield* of(""))
    assert.deepStrictEqual(yield* of("127.0.0.1:8787"), { host: "127.0.0.1", port: 8_787 })
    assert.deepStrictEqual(yield* of("[::1]:80"), { host: "::1", port: 80 })
    for (const wrong of [
      "8787",
      "127.0.0.1",
      "http://127.0.0.1:8787",
      "127.0.0.1:0",
      "127.0.0.1:70000",
      "::1:80"
    ])
      assert.include(String(yield* Effect.flip(of(wrong))), "SVC_LOCAL_API")
  })
)

it.effect("containers of environments have addresses of one range, which an operator may choose", () =>
  Effect.gen(function* () {
    const of = (range: string) =>
      Effect.map(read({ SVC_ENVIRONMENT_RANGE: range }), ({ environmentRange }) => environmentRange)
    assert.strictEqual(yield* of(""), "10.219.0.0/16")
    assert.strictEqual(yield* of("172.30.0.0/16"), "172.30.0.0/16")
    for (const wrong of [
      "10.0.0.0/8",
      "10.1.2.0/16",
      "10.89.0.0/16",
      "127.0.0.0/16",
      "10.1.0.0",
      "fd00::/16",
      "300.1.0.0/16"
    ])
      assert.include(String(yield* Effect.flip(of(wrong))), "SVC_ENVIRONMENT_RANGE")
  })
)

it.effect(
  "faults in settings of features are told together, each with its variable, and secrets are not repeated",
  () =>
    Effect.gen(function* () {
      const env = {
        SVC_QUEUE_MAX_MB: "none",
        SVC_SMTP_URL: "https://user:hidden@example.com",
        SVC_CATALOG: "any"
      }
      const said = String(yield* Effect.flip(Effect.provide(checkSettings, AppConfig.layerFrom(env))))
      for (const name of ["SVC_QUEUE_MAX_MB", "SVC_SMTP_URL"]) assert.include(said, name)
      assert.notInclude(said, "hidden")
      yield* Effect.provide(checkSettings, AppConfig.layerFrom({ SVC_QUEUE_MAX_MB: "7" }))
    })
)
