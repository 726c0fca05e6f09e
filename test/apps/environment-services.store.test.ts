/** What an environment provides, from what the store and the machine's reservations of ports say. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { defaultBackupPolicy } from "#schemas/backup-policy.ts"
import { EnvironmentServices } from "#src/apps/EnvironmentServices.ts"
import { AppConfig, type Settings } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Host } from "#src/infra/host/Host.ts"
import { makeSigningSecrets } from "#src/outbound/signing-secrets.ts"
import { AppServiceTokens } from "#src/projects/AppServiceTokens.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"

const secrets = memorySecrets()
const stack = Layer.mergeAll(Resources.layer, AppServiceTokens.layer).pipe(
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

/** An environment with a database of one standby and a cache, whose servers have ports from this one on. */
const environment = Effect.fnUntraced(function* (first: number, host = "127.0.0.1") {
  const { engine: sql } = yield* Db
  const resources = yield* Resources
  const { id: orgId } = yield* makeOrganization()
  const place = yield* makeProject(orgId, "shop")
  const cache = cacheChange(place, "sessions")
  const database = {
    ...cache,
    uid: uuid(),
    kind: "Database",
    name: "main",
    spec: { sku: "db-n1", region: "local", credentialVersion: 1, replicas: 1, backup: defaultBackupPolicy }
  } as const
  yield* resources.write(orgId, [database, cache], actor)
  const statuses = [
    [database.uid, { host, port: first, dbName: "app", user: "app" }],
    [cache.uid, { host, port: first + 2 }]
  ] as const
  for (const [uid, status] of statuses) {
    yield* sql`update resource set status = ${sql.json(status)} where org_id = ${orgId}::uuid and uid = ${uid}::uuid`
    secrets.write({ orgId, uid, field: "password" }, Redacted.make("pass"))
  }
  const reserved: ReadonlyArray<readonly [number, string]> = [
    [first, database.uid],
    [first + 1, `${database.uid}-1`],
    [first + 2, `caches/${cache.uid}`]
  ]
  return { orgId, ...place, database, cache, reserved }
})
type Environment = Effect.Success<ReturnType<typeof environment>>

/** On a machine with these reservations; by port. */
const provided = Effect.fnUntraced(function* (
  { orgId, projectId }: Pick<Environment, "orgId" | "projectId">,
  reserved: ReadonlyArray<readonly [number, string]>,
  settings: Partial<Settings> = {}
) {
  const dataDir = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
    (folder) => Effect.sync(() => fs.rmSync(folder, { recursive: true, force: true }))
  )
  fs.mkdirSync(path.join(dataDir, "ports"))
  for (const [port, holder] of reserved) fs.symlinkSync(holder, path.join(dataDir, "ports", String(port)))
  return yield* Effect.gen(function* () {
    const found = yield* (yield* EnvironmentServices).provide({ orgId, projectId, environment: "production" })
    const { services, variables } = Option.getOrThrow(found)
    return {
      services: services.toSorted((one, other) => one.port - other.port),
      variables: Redacted.value(variables)
    }
  }).pipe(
    Effect.provide(
      EnvironmentServices.layer.pipe(
        Layer.provide(Host.layer),
        Layer.provide(CertificateAuthority.layer),
        Layer.provide(secrets.layer),
        Layer.provide(AppConfig.layerWith({ dataDir, ...settings }))
      ),
      { local: true }
    )
  )
}, Effect.scoped)

const api = { port: 8787, address: "127.0.0.1" }
const at = (port: number) => ({ port, address: "127.0.0.1" })

layer(stack, { excludeTestServices: true, timeout: "2 minutes" })("what an environment provides", (it) => {
  it.effect("is its own servers with their standbys and the API, and nobody else's", () =>
    Effect.gen(function* () {
      const own = yield* environment(20_000)
      const foreign = yield* environment(21_000)
      const found = yield* provided(own, [...own.reserved, ...foreign.reserved, [22_000, "state-store"]])
      assert.deepStrictEqual(found.services, [api, at(20_000), at(20_001), at(20_002)])
      assert.deepInclude(found.variables, {
        SVC_ENVIRONMENT: "production",
        SVC_API_URL: "http://services.svc.internal:8787",
        DATABASE_URL: "postgres://app:pass@services.svc.internal:20000/app?sslmode=verify-full",
        REDIS_URL: "rediss://svc:pass@services.svc.internal:20002"
      })
    })
  )

  it.effect("leaves out at once what is being deleted, although its server still has its port", () =>
    Effect.gen(function* () {
      const own = yield* environment(20_000)
      const resources = yield* Resources
      yield* resources.write(own.orgId, [{ action: "delete", uid: own.cache.uid }], actor)
      const found = yield* provided(own, own.reserved)
      assert.deepStrictEqual(found.services, [api, at(20_000), at(20_001)])
      assert.isUndefined(found.variables["REDIS_URL"])
    })
  )

  it.effect(
    "follows the ports that this machine has given, and not what a status said of one that is free by now",
    () =>
      Effect.gen(function* () {
        const own = yield* environment(20_000)
        const somebody = yield* environment(21_000)
        const reserved = [[20_000, somebody.database.uid] as const, [20_005, own.database.uid] as const]
        assert.deepStrictEqual((yield* provided(own, reserved)).services, [api, at(20_005)])
      })
  )

  it.effect("is not known while the name of this machine is not found, so that nobody is cut off", () =>
    Effect.gen(function* () {
      const own = yield* environment(20_000)
      const failed = yield* Effect.flip(provided(own, own.reserved, { managedHost: "nobody.invalid" }))
      assert.include(failed.message, "nobody.invalid")
    })
  )

  it.effect("names servers of another region where that says they are, and leads to none of them", () =>
    Effect.gen(function* () {
      const far = yield* environment(20_000, "10.1.2.3")
      const found = yield* provided(far, [])
      assert.deepStrictEqual(found.services, [api])
      assert.match(found.variables["DATABASE_URL"] ?? "", /@10\.1\.2\.3:20000\//)
    })
  )

  it.effect(
    "is nothing of this machine where containers are not led to it; what only it can call is not named",
    () =>
      Effect.gen(function* () {
        const own = yield* environment(20_000)
        const off = yield* provided(own, own.reserved, {
          services: undefined,
          publicUrl: "https://svc.example.com"
        })
        assert.deepStrictEqual(off.services, [])
        assert.deepStrictEqual(Object.keys(off.variables).sort(), [
          "APP_SERVICE_TOKEN",
          "SVC_API_URL",
          "SVC_ENVIRONMENT",
          "SVC_SIGNING_SECRET"
        ])
        // What calls to it are signed with, whoever made that first.
        const { engine: sql } = yield* Db
        const [found] = yield* sql<{ readonly uid: string }>`
          select uid from resource where org_id = ${own.orgId}::uuid and kind = 'Environment' and name = 'production'`
        const signing = yield* (yield* makeSigningSecrets).current(own.orgId, found?.uid ?? "")
        assert.strictEqual(Redacted.value(signing), off.variables["SVC_SIGNING_SECRET"])
        assert.strictEqual(off.variables["SVC_API_URL"], "https://svc.example.com")
      })
  )

  it.effect(
    "has the API where it is: by a name of its own on this machine, at its public address elsewhere",
    () =>
      Effect.gen(function* () {
        const own = yield* environment(20_000)
        const worker = { roles: new Set(["engine"] as const) }
        const here = yield* provided(own, [], { ...worker, publicUrl: "http://localhost:9000" })
        assert.deepStrictEqual(here.services, [{ port: 9_000, address: "127.0.0.1" }])
        assert.strictEqual(here.variables["SVC_API_URL"], "http://services.svc.internal:9000")
        const away = yield* provided(own, [], { ...worker, publicUrl: "https://svc.example.com" })
        assert.deepStrictEqual(away.services, [])
        assert.strictEqual(away.variables["SVC_API_URL"], "https://svc.example.com")
        // Another process of this machine, behind a proxy of another one.
        const beside = yield* provided(own, [], {
          ...worker,
          publicUrl: "https://svc.example.com",
          localApi: { host: "127.0.0.1", port: 9_001 }
        })
        assert.deepStrictEqual(beside.services, [{ port: 9_001, address: "127.0.0.1" }])
        assert.strictEqual(beside.variables["SVC_API_URL"], "http://services.svc.internal:9001")
      })
  )
})
