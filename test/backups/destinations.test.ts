/** Destinations as those see them who copy backups there, as people type them, and what is kept of their secrets. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { Destinations } from "#src/backups/destinations/Destinations.ts"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { Operator, signedIn } from "#test/cli/control-plane.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { type ObjectStore, objectStore, trust } from "#test/setup/s3.ts"

class Store extends Context.Service<Store, ObjectStore>()("test/ObjectStore") {}

/** The service of a second control plane, with the store and the keys of the first. */
const second = Layer.unwrap(
  Effect.map(Plane, ({ databaseUrl, dataDir }) =>
    Destinations.layer.pipe(
      Layer.provide(CertificateAuthority.layer),
      Layer.provide(PlatformSecrets.layer),
      Layer.provide(KeyRing.layer),
      Layer.provide(Db.layer({ url: Redacted.make(databaseUrl) })),
      Layer.provide(AppConfig.layerWith({ dataDir })),
      Layer.provide(Logger.layer([]))
    )
  )
)
const world = Layer.unwrap(
  Effect.map(objectStore, (store) => {
    trust(store.caPem)
    return Layer.merge(Layer.provideMerge(second, signedIn()), Layer.succeed(Store, store))
  })
)
const base = "/v1/orgs/main/backup-destinations"

layer(world, { excludeTestServices: true, timeout: "10 minutes" })("destinations", (it) => {
  it.effect("are places, of which the old ones stay as they were", () =>
    Effect.gen(function* () {
      const far = yield* Store
      const { call, sql } = yield* Plane
      const destinations = yield* Destinations
      const { endpoint, bucket, credentials } = far
      const made = yield* call("POST", base, {
        body: { name: "versions", endpoint, bucket, prefix: "one", credentials }
      })
      assert.strictEqual(made.status, 201, made.text)
      const [row] = yield* sql("select id::text from organization where slug = 'main'")
      const orgId = String(row?.["id"])
      const id = made.body.id
      const content = Stream.make(Buffer.from("first"))
      const first = yield* destinations.current(orgId, id)
      assert.deepStrictEqual([first.version, first.place.id], [1, id])
      yield* first.place.put("a", content)
      assert.strictEqual((yield* call("PATCH", `${base}/${id}`, { body: { prefix: "two" } })).status, 200)
      const next = yield* destinations.current(orgId, id)
      assert.strictEqual(next.version, 2)
      const text = (place: typeof next.place) =>
        Effect.map(Stream.runCollect(place.get("a")), (chunks) => Buffer.concat(chunks).toString())
      assert.strictEqual((yield* Effect.flip(text(next.place))).reason, "not_found")
      assert.strictEqual(yield* text(yield* destinations.at(orgId, id, 1)), "first")
      // Credentials are bound to their version: those of another do not open in its place.
      const sealed = `(select sealed from backup_destination_version where destination_id = '${id}' and version = 2)`
      yield* sql(
        `update backup_destination_version set sealed = ${sealed} where destination_id = '${id}' and version = 1`
      )
      assert.strictEqual((yield* Effect.flip(destinations.at(orgId, id, 1))).reason, "unreachable")
      // No other organization has it, whoever asks.
      const stranger = crypto.randomUUID()
      assert.strictEqual((yield* Effect.flip(destinations.current(stranger, id))).reason, "not_found")
      assert.strictEqual((yield* Effect.flip(destinations.at(stranger, id, 2))).reason, "not_found")
      assert.strictEqual((yield* Effect.flip(destinations.at(orgId, id, 9))).reason, "not_found")
    })
  )

  it.effect("stay readable when their key is replaced", () =>
    Effect.gen(function* () {
      const far = yield* Store
      const { call, sql } = yield* Plane
      const destinations = yield* Destinations
      const { endpoint, bucket, credentials } = far
      const made = yield* call("POST", base, { body: { name: "rekeyed", endpoint, bucket, credentials } })
      const [row] = yield* sql("select id::text from organization where slug = 'main'")
      const orgId = String(row?.["id"])
      const ref = { orgId, uid: made.body.id }
      // A version whose key does not hold any more, and the one in force after it.
      const dead = yield* destinations.keep(ref, far.config({ secretAccessKey: Redacted.make("replaced") }))
      assert.strictEqual(dead, 2)
      const after = yield* call("PATCH", `${base}/${ref.uid}`, { body: { credentials } })
      assert.strictEqual(after.body.version, 3)
      const old = yield* destinations.at(orgId, ref.uid, dead)
      assert.deepStrictEqual(yield* old.put("x", Stream.make(Buffer.from("x"))), { bytes: 1 })
    })
  )

  it.effect("are what svc destinations shows, and their secrets are nowhere", () =>
    Effect.gen(function* () {
      const far = yield* Store
      const { svc, cwd, manifest } = yield* Operator
      const { call, sql } = yield* Plane
      const ok = Effect.fnUntraced(function* (args: ReadonlyArray<string>, more = {}) {
        const done = yield* svc(["destinations", ...args], more)
        assert.strictEqual(done.code, 0, `${args.join(" ")}: ${done.stderr}`)
        return done.stdout
      })
      const { accessKeyId, secretAccessKey } = far.credentials
      const to = ["--endpoint", far.endpoint, "--bucket", far.bucket, "--access-key-id", accessKeyId]
      const id = (yield* ok(["create", "typed", ...to, "--prefix", "cli"], {
        stdin: `${secretAccessKey}\n`
      })).trim()
      assert.match(yield* ok(["ls"]), /typed +https:\/\/localhost:\d+\/backups\/cli +1 +ready/)
      assert.strictEqual(JSON.parse(yield* ok(["get", "typed", "--json"])).id, id)
      fs.writeFileSync(path.join(cwd, "key"), `${secretAccessKey}\n`)
      yield* ok(["update", "typed", "--access-key-id", accessKeyId, "--secret-key-file", "key"])
      const env = { SVC_DESTINATION_SECRET_KEY: secretAccessKey }
      const updated = yield* ok(
        ["update", "typed", "--access-key-id", accessKeyId, "--name", "renamed", "--json"],
        { env }
      )
      assert.deepStrictEqual([JSON.parse(updated).name, JSON.parse(updated).version], ["renamed", 3])
      assert.strictEqual(JSON.parse(yield* ok(["test", "renamed", "--json"])).ok, true)
      const wrong = yield* svc(["destinations", "create", "wrong", ...to], { stdin: "not-the-secret-key" })
      assert.strictEqual(wrong.code, 1)
      assert.match(wrong.stderr, /credentials/)
      assert.strictEqual((yield* svc(["destinations", "get", "nope"])).code, 5)
      assert.strictEqual((yield* svc(["destinations", "update", "renamed"])).code, 2)

      // A manifest names destinations by id; one that is not there is told with its place.
      const text = (named: string) => `version: 1
organization: main
projects:
  - name: Kept
    slug: kept
    runtimeClass: scale-to-zero
    databases: [{ name: main, sku: db-n1, region: local, backup: { destinationIds: ["${named}"] } }]
`
      const unknown = crypto.randomUUID()
      const blocked = JSON.parse((yield* svc(["plan", "-f", manifest(text(unknown)), "--json"])).stdout)
      assert.deepInclude(blocked.blockers[0], {
        pointer: "/projects/0/databases/0/backup/destinationIds/0",
        code: "unknown_destination"
      })
      const good = JSON.parse((yield* svc(["plan", "-f", manifest(text(id)), "--json"])).stdout)
      assert.deepStrictEqual(good.blockers, [])

      const tables = yield* sql(
        "select table_name as name from information_schema.tables where table_schema = 'public'"
      )
      for (const { name } of tables) {
        const rows = yield* sql(`select string_agg(t::text, ' ') as text from "${String(name)}" t`)
        const all = String(rows[0]?.["text"])
        assert.notInclude(all, secretAccessKey, String(name))
        assert.notInclude(all, "not-the-secret-key", String(name))
        assert.notInclude(all, Buffer.from(secretAccessKey).toString("hex"), String(name))
      }
      const events = yield* call("GET", `/v1/orgs/main/resources/${id}/events`)
      const seen = [yield* ok(["ls", "--json"]), events.text, wrong.stdout, wrong.stderr].join("\n")
      assert.notInclude(seen, secretAccessKey)
      assert.notInclude(seen, "not-the-secret-key")
      yield* ok(["delete", "renamed", "--yes"])
      assert.notMatch(yield* ok(["ls"]), /renamed/)
    })
  )
})
