import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AccessTest, BackupDestinationList, BackupDestinationView } from "#src/backups/destinations/api.ts"
import { fits, untilAnswer } from "#test/setup/answers.ts"
import { type Answer, Plane, testPlane } from "#test/setup/control-plane.ts"
import { type Asked, type ObjectStore, objectStore, trust } from "#test/setup/s3.ts"

class Store extends Context.Service<Store, ObjectStore>()("test/ObjectStore") {}

// The control plane trusts the authority of the store from its start.
const world = Layer.unwrap(
  Effect.map(objectStore, (store) => {
    trust(store.caPem)
    return Layer.merge(testPlane(), Layer.succeed(Store, store))
  })
)

const base = "/v1/orgs/main/backup-destinations"

const wanted = (name: string, values: object = {}) =>
  Effect.map(Store, ({ endpoint, bucket, credentials }) => ({
    name,
    endpoint,
    bucket,
    credentials,
    ...values
  }))

/** Makes trouble while `self` runs. */
const during = <A, E, R>(trouble: ObjectStore["trouble"], self: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const far = yield* Store
    far.trouble = trouble
    return yield* Effect.ensuring(
      self,
      Effect.sync(() => {
        far.trouble = () => undefined
      })
    )
  })

layer(world, { excludeTestServices: true })("backup destinations", (it) => {
  it.effect(
    "are tested, created, read, listed by name, changed in versions, and deleted",
    () =>
      Effect.gen(function* () {
        const far = yield* Store
        const { call, session, sql } = yield* Plane
        const body = yield* wanted("offsite", { prefix: "/svc/backups/" })
        const made = yield* call("POST", base, { body })
        assert.strictEqual(made.status, 201, made.text)
        yield* fits(BackupDestinationView, made.body)
        const { id, createdAt, updatedAt, lastTestedAt, ...rest } = made.body
        assert.strictEqual(createdAt, updatedAt)
        assert.isNotNull(lastTestedAt)
        assert.deepStrictEqual(rest, {
          name: "offsite",
          kind: "custom_object_storage",
          endpoint: far.endpoint,
          bucket: far.bucket,
          prefix: "svc/backups",
          region: null,
          version: 1,
          status: "ready",
          fault: null
        })
        // The test wrote, read, listed and deleted, at once and in parts, below the prefix.
        const done = far.requests.map(({ method, url }) => `${method} ${url.split("?")[0]}`)
        assert.isTrue(done.some((line) => line.startsWith("PUT /backups/svc/backups/svc-access-test/")))
        assert.isTrue(far.requests.some(({ url }) => url.includes("uploadId=")))
        assert.strictEqual(done.filter((line) => line.startsWith("DELETE")).length, 2)

        assert.strictEqual((yield* call("POST", base, { body })).status, 409)
        const second = yield* call("POST", base, { body: yield* wanted("archive") })
        assert.strictEqual(second.status, 201, second.text)
        const all = yield* call("GET", base)
        yield* fits(BackupDestinationList, all.body)
        assert.deepStrictEqual(
          all.body.map(({ name }: { name: string }) => name),
          ["archive", "offsite"]
        )
        const one = `${base}/${id}`
        const read = yield* call("GET", one)
        assert.deepStrictEqual(read.body, made.body)
        assert.match(read.headers.get("etag") ?? "", /^"\d+"$/)

        const tested = yield* call("POST", `${one}/test`)
        assert.strictEqual(tested.status, 200, tested.text)
        yield* fits(AccessTest, tested.body)
        assert.strictEqual(tested.body.ok, true)
        assert.strictEqual((yield* call("GET", one)).body.lastTestedAt, tested.body.testedAt)

        // Another name is no other configuration; everything else is.
        const renamed = yield* call("PATCH", one, { body: { name: "elsewhere" } })
        assert.deepStrictEqual(
          [renamed.status, renamed.body.name, renamed.body.version],
          [200, "elsewhere", 1]
        )
        assert.strictEqual((yield* call("PATCH", one, { body: { name: "archive" } })).status, 409)
        const moved = yield* call("PATCH", one, { body: { prefix: "other", region: "us-east-1" } })
        assert.deepStrictEqual(
          [moved.status, moved.body.version, moved.body.prefix, moved.body.region, moved.body.status],
          [200, 2, "other", "us-east-1", "ready"]
        )
        const rekeyed = yield* call("PATCH", one, { body: { credentials: far.credentials } })
        assert.deepStrictEqual([rekeyed.status, rekeyed.body.version], [200, 3])
        // What does not work changes nothing.
        const wrong = { ...far.credentials, secretAccessKey: "wrong" }
        const refused = yield* call("PATCH", one, { body: { prefix: "third", credentials: wrong } })
        assert.deepStrictEqual(
          [refused.status, refused.body.code, refused.body.errors[0].pointer],
          [422, "destination_credentials", "/credentials"]
        )
        // A session token is for the endpoint that it came with: another one is not even asked.
        const borrowed = { ...far.credentials, sessionToken: "for-that-one-only" }
        const lent = yield* call("PATCH", one, { body: { credentials: borrowed } })
        assert.deepStrictEqual([lent.status, lent.body.version], [200, 4])
        const before = far.requests.length
        const elsewhere = yield* call("PATCH", one, {
          body: { endpoint: far.endpoint.replace("localhost", "127.0.0.1") }
        })
        assert.deepStrictEqual(
          [elsewhere.status, elsewhere.body.errors[0].pointer, far.requests.length],
          [422, "/credentials", before]
        )
        const half = yield* call("PATCH", one, { body: { credentials: { accessKeyId: "x" } } })
        assert.deepStrictEqual(
          [half.status, half.body.errors[0].pointer],
          [422, "/credentials/secretAccessKey"]
        )
        assert.deepStrictEqual((yield* call("GET", one)).body.version, 4)
        const stale = { headers: { "if-match": '"0"' } }
        assert.strictEqual((yield* call("PATCH", one, { body: { prefix: "x" }, ...stale })).status, 412)
        // Of changes at the same moment none is lost.
        const both = yield* Effect.all(
          ["p1", "p2"].map((prefix) => call("PATCH", one, { body: { prefix } })),
          { concurrency: 2 }
        )
        assert.deepStrictEqual(both.map(({ status }) => status).sort(), [200, 200])
        const versions = both.map(({ body }) => body.version)
        assert.notStrictEqual(versions[0], versions[1])

        const asOwner = {
          token: null,
          headers: { cookie: `svc_session=${session}`, origin: (yield* Plane).url }
        }
        const uses = (ids: ReadonlyArray<string>) =>
          sql(`update resource set spec = jsonb_set(spec, '{backup}', '{"destinationIds": ${JSON.stringify(ids)}}'), generation = generation + 1
          where kind = 'Database'`)
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
        yield* sql(`insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, managed_by)
        select p.org_id, gen_random_uuid(), 'Database', p.uid, 'production', 'main', e.uid, '{}', 'api'
        from resource p join resource e on e.parent_uid = p.uid and e.kind = 'Environment' and e.name = 'production'
        where p.kind = 'Project' and p.name = 'shop'`)
        yield* uses([id])
        const inUse = yield* call("DELETE", one, asOwner)
        assert.deepStrictEqual(
          [inUse.status, inUse.body.code, inUse.body.addresses],
          [409, "in_use", ["shop/production/Database/main"]]
        )
        yield* uses([])
        const stored = far.requests.length
        assert.strictEqual((yield* call("DELETE", one, asOwner)).status, 200)
        yield* untilAnswer(call("GET", one), ({ status }) => status === 404)
        assert.isEmpty(far.requests.slice(stored).filter(({ method }) => method === "DELETE"))
        const left = yield* sql(`select 1 from backup_destination_version where destination_id = '${id}'`)
        assert.isEmpty(left)
        // Its name is free again.
        assert.strictEqual((yield* call("POST", base, { body: { ...body, name: "elsewhere" } })).status, 201)
      }),
    400_000
  )

  it.effect(
    "are refused with the part that is at fault, and nothing is stored",
    () =>
      Effect.gen(function* () {
        const far = yield* Store
        const { call } = yield* Plane
        const { port } = new URL(far.endpoint)
        const before = (yield* call("GET", base)).body.length
        const refuse = Effect.fnUntraced(function* (
          values: object,
          code: string,
          pointer: string,
          trouble: ObjectStore["trouble"] = () => undefined
        ) {
          const body = yield* wanted("refused", values)
          const answer = yield* during(trouble, call("POST", base, { body }))
          assert.deepStrictEqual(
            [answer.status, answer.body.code, answer.body.errors?.[0]?.pointer],
            [422, code, pointer],
            answer.text
          )
          return answer
        })
        const key = far.credentials.accessKeyId
        yield* refuse(
          { credentials: { accessKeyId: key, secretAccessKey: "x" } },
          "destination_credentials",
          "/credentials"
        )
        yield* refuse(
          { credentials: { ...far.credentials, accessKeyId: "x:y" } },
          "destination_credentials",
          "/credentials"
        )
        yield* refuse({ credentials: far.powerless }, "destination_write", "/credentials")
        yield* refuse({ bucket: "nothere" }, "destination_bucket", "/bucket")
        yield* refuse({ region: "eu-north-1" }, "destination_region", "/region")
        yield* refuse({ endpoint: "https://169.254.169.254" }, "destination_blocked_address", "/endpoint")
        yield* refuse({ endpoint: "https://10.1.2.3:9000" }, "destination_blocked_address", "/endpoint")
        yield* refuse({ endpoint: "https://nobody.invalid" }, "destination_dns", "/endpoint")
        yield* refuse({ endpoint: "https://127.0.0.1:1" }, "destination_unreachable", "/endpoint")
        yield* refuse({ endpoint: `https://x.localhost:${port}` }, "destination_tls", "/endpoint")
        yield* refuse({}, "destination_clock", "/endpoint", () => "late")
        const forbidden = (method: string) => (asked: Asked) =>
          asked.method === method ? { status: 403, code: "AccessDenied" } : undefined
        yield* refuse({}, "destination_read", "/credentials", forbidden("GET"))
        const left = yield* refuse({}, "destination_delete", "/credentials", forbidden("DELETE"))
        assert.match(left.body.detail, /svc-access-test\/[0-9a-f]{32} could not be deleted and is left there/)
        const parts = ({ url }: Asked) =>
          url.includes("uploads") ? { status: 501, code: "NotImplemented" } : undefined
        yield* refuse({}, "destination_unreachable", "/endpoint", parts)
        // An object store that gives back something else.
        const swapped = ({ method, url }: Asked) =>
          method === "GET" && url.includes("svc-access-test/") && !url.includes("list-type")
            ? { status: 200, text: "no" }
            : undefined
        yield* refuse({}, "destination_read", "/credentials", swapped)

        const faults: ReadonlyArray<readonly [object, string]> = [
          [{ name: "X" }, "/name"],
          [{ endpoint: "http://localhost" }, "/endpoint"],
          [{ endpoint: "https://user:word@localhost" }, "/endpoint"],
          [{ endpoint: "https://localhost/?x=y" }, "/endpoint"],
          [{ bucket: "arn:aws:s3:::x" }, "/bucket"],
          [{ prefix: "a//b" }, "/prefix"],
          [{ prefix: "../b" }, "/prefix"],
          [{ region: "x y" }, "/region"],
          [{ credentials: { accessKeyId: "x" } }, "/credentials/secretAccessKey"],
          [{ credentials: { accessKeyId: "x", secretAccessKey: "a\r\nb" } }, "/credentials/secretAccessKey"],
          [{ version: 7 }, "/version"]
        ]
        for (const [values, pointer] of faults) {
          const answer = yield* call("POST", base, { body: yield* wanted("refused", values) })
          assert.strictEqual(answer.status, 422, pointer)
          assert.include(
            answer.body.errors.map((fault: { pointer: string }) => fault.pointer),
            pointer,
            answer.text
          )
        }
        assert.strictEqual((yield* call("GET", base)).body.length, before)
        const json = { "content-type": "application/json" }
        assert.strictEqual((yield* call("POST", base, { raw: "{", headers: json })).status, 400)
        assert.strictEqual(
          (yield* call("POST", base, { raw: "x", headers: { "content-type": "text/plain" } })).status,
          415
        )
        assert.strictEqual(
          (yield* call("POST", base, { raw: `"${"x".repeat(1 << 20)}"`, headers: json })).status,
          413
        )
      }),
    400_000
  )

  it.effect(
    "tell when they stop working, and when they work again",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const made = yield* call("POST", base, { body: yield* wanted("watched", { prefix: "watched" }) })
        const one = `${base}/${made.body.id}`
        const resource = call("GET", `/v1/orgs/main/resources/${made.body.id}`)
        const ready = (answer: Answer) =>
          answer.body.conditions?.find(({ type }: { type: string }) => type === "Ready")
        yield* untilAnswer(resource, (answer) => ready(answer)?.status === "true")
        const failing = Effect.gen(function* () {
          const tested = yield* call("POST", `${one}/test`)
          assert.deepStrictEqual([tested.status, tested.body.code], [422, "destination_credentials"])
          const view = (yield* call("GET", one)).body
          assert.deepStrictEqual([view.status, view.fault.code], ["failed", "credentials"])
          const seen = yield* untilAnswer(resource, (answer) => ready(answer)?.status === "false")
          assert.strictEqual(ready(seen).reason, "AccessFailed")
          assert.match(ready(seen).message, /credentials/)
        })
        yield* during(() => ({ status: 403, code: "InvalidAccessKeyId" }), failing)
        assert.strictEqual((yield* call("POST", `${one}/test`)).status, 200)
        assert.strictEqual((yield* call("GET", one)).body.status, "ready")
        yield* untilAnswer(resource, (answer) => ready(answer)?.status === "true")
        const events = yield* call("GET", `/v1/orgs/main/resources/${made.body.id}/events`)
        assert.match(events.text, /AccessFailed/)
      }),
    400_000
  )
})
