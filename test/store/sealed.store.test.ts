import { randomBytes } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { destinationPlace, openCredentials, sealCredentials } from "#src/backups/destinations/seal.ts"
import { lineagePlace } from "#src/backups/repository/lineage-place.ts"
import { certificatePlace } from "#src/edge/certificates/Certificates.ts"
import { orderPlace } from "#src/edge/certificates/jobs.ts"
import { tableRules } from "#src/features.ts"
import { openConnection, sealConnection } from "#src/git/connection-secrets.ts"
import { insertMail, Mail } from "#src/mail/Mail.ts"
import { Plans } from "#src/manifest/Plans.ts"
import { openWebhookSecrets, sealWebhookSecrets } from "#src/payments/webhook-secrets.ts"
import { tokenPlace } from "#src/projects/AppServiceTokens.ts"
import { Db } from "#src/store/Db.ts"
import { Idempotency } from "#src/store/Idempotency.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { newReservation } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import { PlatformSecrets, Secrets } from "#src/store/Secrets.ts"
import { checkKeyRing, rotateKeys, sealedTables } from "#src/store/sealed.ts"
import { openSecrets } from "#src/webhooks/secrets.ts"
import { Webhooks } from "#src/webhooks/Webhooks.ts"
import { connectionChange } from "#test/payments/connection.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

const key = (id: string) => `${id}:${randomBytes(32).toString("base64")}`
const [old, fresh, third] = [key("old"), key("fresh"), key("third")]
const services = Layer.mergeAll(
  Resources.layer,
  Secrets.layer,
  PlatformSecrets.layer,
  Plans.layer,
  Idempotency.layer,
  Mail.layer,
  Webhooks.layer
)
/** A process with these keys. */
const ringOf = (...keys: ReadonlyArray<string>) =>
  Layer.provideMerge(services, KeyRing.layerOf(Redacted.make(keys.join(","))))

/** Values in every table that holds sealed ones, and a way to read them all back. */
const fill = Effect.fn(function* (caches: number) {
  const org = yield* makeOrganization()
  const place = yield* makeProject(org.id, "shop")
  const changes = Array.from({ length: caches }, (_, i) => ({
    ...cacheChange(place, `cache-${i}`),
    secrets: { password: Redacted.make(`password ${i}`) }
  }))
  yield* (yield* Resources).write(org.id, changes, actor)
  const name = `thing-${uuid()}`
  const plan = yield* (yield* Plans).save(org.id, uuid(), Redacted.make("the plan"))
  const ref = { orgId: org.id, credential: "key:1", key: "once" }
  const digest = Buffer.from("digest")
  const idempotency = yield* Idempotency
  yield* idempotency.begin(ref, digest)
  yield* idempotency.finish(ref, { status: 201, headers: {}, body: "the answer" })
  yield* (yield* PlatformSecrets).ensure(name, Effect.succeed(Redacted.make("the platform's")))
  const wanted = { url: "https://example.com/", events: ["budget.alert"] } as const
  const hook = yield* (yield* Webhooks).create(org.id, wanted, actor, newReservation(false))
  const { engine: sql } = yield* Db
  const letter = {
    template: "test",
    subject: "Hello",
    text: "the mail",
    to: "a@example.com",
    usefulSeconds: 60
  }
  yield* sql`${insertMail(sql, (yield* Mail).prepare({ ...letter, orgId: null }))}`
  const ring = yield* KeyRing
  const bucket = destinationPlace(org.id, place.projectId, "1")
  const access = sealCredentials(ring, bucket, {
    accessKeyId: "AKIA",
    secretAccessKey: Redacted.make("the storage's")
  })
  yield* sql`
    insert into backup_destination_version
      (org_id, destination_id, version, endpoint, bucket, prefix, key_id, sealed)
    values (${org.id}, ${place.projectId}, 1, 'https://example.com', 'b', '', ${access.keyId}, ${access.bytes})`
  const lineage = uuid()
  const backups = ring.seal(lineagePlace(org.id, lineage), Redacted.make("the backups'"))
  yield* sql`
    insert into backup_lineage (org_id, lineage, database_uid, key_id, sealed)
    values (${org.id}, ${lineage}, ${lineage}, ${backups.keyId}, ${backups.bytes})`
  const tokenId = uuid()
  const token = ring.seal(tokenPlace(org.id, tokenId), Redacted.make("the apps'"))
  yield* sql`
    insert into app_service_token (org_id, id, environment_uid, digest, key_id, sealed)
    values (${org.id}, ${tokenId}, ${place.production}, ${Buffer.from(tokenId)}, ${token.keyId}, ${token.bytes})`
  const host = `${org.id}.example.com`
  const certificate = ring.seal(certificatePlace(host), Redacted.make("the certificate's"))
  yield* sql`
    insert into edge_certificate (name, org_id, state, chain, key_id, sealed)
    values (${host}, ${org.id}, 'issued', 'a chain', ${certificate.keyId}, ${certificate.bytes})`
  const order = ring.seal(orderPlace(host), Redacted.make("the order's"))
  yield* sql`
    insert into edge_certificate_order (name, directory, order_url, key_id, sealed)
    values (${host}, 'https://ca.example.com/', 'https://ca.example.com/1', ${order.keyId}, ${order.bytes})`
  const sealedOf = (table: string) =>
    Effect.map(
      sql.unsafe<{ readonly keyId: string; readonly bytes: Uint8Array }>(
        `select key_id as "keyId", sealed as bytes from ${table} where name = '${host}'`
      ),
      ([row]) => row ?? { keyId: "", bytes: Buffer.of() }
    )
  const payments = uuid()
  yield* (yield* Resources).write(org.id, [connectionChange(place, payments)], actor)
  const signing = sealWebhookSecrets(ring, org.id, payments, { current: "the owner's" })
  yield* sql`
    insert into payment_connection (org_id, uid, key_id, sealed, webhook_secret, fence)
    values (${org.id}, ${payments}, ${signing.keyId}, ${signing.bytes}, '', 0)`
  const connectionId = uuid()
  const opening = { token: Redacted.make("the forge's"), privateKey: undefined }
  const git = sealConnection(ring, org.id, connectionId, { ...opening, webhookSecret: Redacted.make("its") })
  yield* sql`
    insert into git_connection (org_id, id, name, kind, url, owner, key_id, sealed)
    values (${org.id}, ${connectionId}, 'acme', 'gitea', 'https://example.com', 'acme', ${git.keyId}, ${git.bytes})`
  const sealedIn = (table: string) =>
    Effect.map(
      sql.unsafe<{ readonly keyId: string; readonly bytes: Uint8Array }>(
        `select key_id as "keyId", sealed as bytes from ${table} where org_id = '${org.id}'`
      ),
      ([row]) => row ?? { keyId: "", bytes: Buffer.of() }
    )
  const read = Effect.gen(function* () {
    const secrets = yield* Secrets
    const passwords = yield* Effect.forEach(changes, ({ uid }) =>
      Effect.map(secrets.read({ orgId: org.id, uid, field: "password" }), (value) =>
        Redacted.value(Option.getOrThrow(value))
      )
    )
    const answer = yield* (yield* Idempotency).begin(ref, digest)
    const loaded = yield* (yield* Plans).load(org.id, plan.id, false)
    const [row] = yield* sql<{ readonly keyId: string; readonly bytes: Uint8Array }>`
      select key_id as "keyId", sealed as bytes from webhook where id = ${hook.webhook.id}::uuid`
    const signing = yield* openSecrets(
      yield* KeyRing,
      org.id,
      hook.webhook.id,
      row ?? { keyId: "", bytes: Buffer.of() }
    )
    const made = yield* (yield* PlatformSecrets).ensure(name, Effect.die("it is gone"))
    const now = yield* KeyRing
    const opened = yield* openCredentials(now, bucket, yield* sealedIn("backup_destination_version"))
    const history = yield* now.open(lineagePlace(org.id, lineage), yield* sealedIn("backup_lineage"))
    const apps = yield* now.open(tokenPlace(org.id, tokenId), yield* sealedIn("app_service_token"))
    const served = yield* now.open(certificatePlace(host), yield* sealedOf("edge_certificate"))
    const ordered = yield* now.open(orderPlace(host), yield* sealedOf("edge_certificate_order"))
    const connection = yield* openWebhookSecrets(now, org.id, payments, yield* sealedIn("payment_connection"))
    const forge = yield* openConnection(now, org.id, connectionId, yield* sealedIn("git_connection"))
    return {
      forge: forge.token === undefined ? undefined : Redacted.value(forge.token),
      certificate: Redacted.value(served),
      order: Redacted.value(ordered),
      payments: connection.current,
      storage: Redacted.value(opened.secretAccessKey),
      apps: Redacted.value(apps),
      backups: Redacted.value(history),
      passwords,
      answer: answer._tag === "Replay" ? answer.answer.body : answer._tag,
      plan: Redacted.value(Option.getOrThrow(loaded).content),
      signing: signing.map(Redacted.value),
      platform: Redacted.value(made)
    }
  })
  const expected = {
    forge: "the forge's",
    certificate: "the certificate's",
    order: "the order's",
    payments: "the owner's",
    storage: "the storage's",
    apps: "the apps'",
    backups: "the backups'",
    passwords: changes.map((_, i) => `password ${i}`),
    answer: "the answer",
    plan: "the plan",
    signing: [Redacted.value(hook.secret)],
    platform: "the platform's"
  }
  return { org, changes, read, expected }
})

const keysInUse = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const rows = yield* Effect.forEach(yield* sealedTables, ({ name }) =>
    sql.unsafe<{ readonly key_id: string }>(`select distinct key_id from ${name} where key_id is not null`)
  )
  return [...new Set(rows.flat().map(({ key_id }) => key_id))].sort()
})

/** Each test has a store of its own: what is in it is what the test is about. */
const store = { excludeTestServices: true } as const

layer(Layer.mergeAll(testDb(), tableRules), store)("a ring that opens everything", (it) => {
  it.effect("starts, and one without a key that is in use does not: the key is named, and what to do", () =>
    Effect.gen(function* () {
      yield* Effect.provide(checkKeyRing, ringOf(old))
      yield* Effect.provide(fill(1), ringOf(old))
      yield* Effect.provide(checkKeyRing, ringOf(old))
      yield* Effect.provide(checkKeyRing, ringOf(fresh, old))
      for (const { name } of yield* sealedTables) {
        // The last value that needs the key is found wherever it is.
        const { engine: sql } = yield* Db
        yield* sql.unsafe(`update ${name} set key_id = 'lost' where key_id is not null`)
        const error = yield* Effect.flip(Effect.provide(checkKeyRing, ringOf(fresh, old)))
        assert.include(error.message, 'key "lost"', name)
        assert.include(error.message, "SVC_ENCRYPTION_KEYS")
        assert.notInclude(error.message, "\n")
        yield* sql.unsafe(`update ${name} set key_id = 'old' where key_id is not null`)
      }
      const error = yield* Effect.flip(Effect.provide(checkKeyRing, ringOf(fresh)))
      assert.include(error.message, '"old"')
      assert.include(error.message, '"fresh"')
    })
  )

  it.effect("another key under the same name is noticed; one altered value is not mistaken for that", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const error = yield* Effect.flip(Effect.provide(checkKeyRing, ringOf(key("old"))))
      assert.include(error.message, "it is another key")
      yield* sql`update platform_secret set sealed = sealed || 'x'::bytea`
      yield* Effect.provide(checkKeyRing, ringOf(old))
    })
  )
})

layer(Layer.mergeAll(testDb(), tableRules), store)("rotating keys", (it) => {
  it.effect(
    "seals every value anew with the first key; then the old one can go, and nothing is left to do",
    () =>
      Effect.gen(function* () {
        const { read, expected } = yield* Effect.provide(fill(450), ringOf(old))
        const progress: Array<number> = []
        const rotation = yield* Effect.provide(
          rotateKeys((resealed) => Effect.sync(() => void progress.push(resealed))),
          ringOf(fresh, old)
        )
        assert.deepStrictEqual(rotation, { keyId: "fresh", resealed: 462, unreadable: [], remaining: 0 })
        assert.deepStrictEqual([progress.length > 3, progress.at(-1)], [true, 462])
        assert.deepStrictEqual(yield* keysInUse, ["fresh"])
        yield* Effect.provide(checkKeyRing, ringOf(fresh))
        assert.deepStrictEqual(yield* Effect.provide(read, ringOf(fresh)), expected)
        const again = yield* Effect.provide(rotateKeys(), ringOf(fresh, old))
        assert.strictEqual(again.resealed, 0)
      })
  )

  it.effect("two at once and a stop in the middle lose nothing, and values written meanwhile stay", () =>
    Effect.gen(function* () {
      const { org, changes, read, expected } = yield* Effect.provide(fill(900), ringOf(fresh))
      const half = yield* Effect.provide(
        Effect.flip(rotateKeys((resealed) => (resealed >= 400 ? Effect.fail("stopped") : Effect.void))),
        ringOf(third, fresh)
      )
      assert.strictEqual(half, "stopped")
      assert.deepStrictEqual(yield* keysInUse, ["fresh", "third"])

      const overwritten = changes.filter((_, i) => i % 3 === 0)
      const write = Effect.forEach(
        overwritten,
        ({ uid }) =>
          Effect.flatMap(Secrets, (secrets) =>
            secrets.write({ orgId: org.id, uid, field: "password" }, Redacted.make("newer"))
          ),
        { concurrency: 4 }
      )
      const rotate = Effect.provide(rotateKeys(), ringOf(third, fresh))
      // The writer still seals with the former key, as a process does that was not restarted yet.
      const [one, two] = yield* Effect.all([rotate, rotate, Effect.provide(write, ringOf(fresh, third))], {
        concurrency: "unbounded"
      })
      assert.isAbove(one.resealed + two.resealed, 0)
      yield* rotate
      assert.deepStrictEqual(yield* keysInUse, ["third"])
      assert.deepStrictEqual(yield* Effect.provide(read, ringOf(third)), {
        ...expected,
        passwords: expected.passwords.map((password, i) => (i % 3 === 0 ? "newer" : password))
      })
    })
  )

  it.effect("a value that does not open is named and left alone; the others are done", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const { org, changes } = yield* Effect.provide(fill(3), ringOf(third))
      const altered = changes[1]?.uid ?? ""
      yield* sql`update secret set sealed = sealed || 'x'::bytea where org_id = ${org.id} and uid = ${altered}`
      const rotation = yield* Effect.provide(rotateKeys(), ringOf(old, third))
      assert.deepStrictEqual(rotation.unreadable, [`secret/${org.id}/${altered}/password`])
      assert.strictEqual(rotation.remaining, 0)
      assert.deepStrictEqual(yield* keysInUse, ["old", "third"])
    })
  )

  it.effect("knows every table that holds sealed values", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const rows = yield* sql<{ readonly table_name: string }>`
        select table_name from information_schema.columns
        where table_schema = 'public' and column_name in ('sealed', 'key_id') group by table_name`
      assert.sameMembers(
        rows.map(({ table_name }) => table_name),
        (yield* sealedTables).map(({ name }) => name)
      )
    })
  )
})
