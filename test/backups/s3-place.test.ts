import { createHash, randomBytes } from "node:crypto"
import * as tls from "node:tls"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { checkAccess } from "#src/backups/destinations/check.ts"
import {
  type ConnectionOptions,
  type DestinationConfig,
  DestinationConnection
} from "#src/backups/destinations/connection.ts"
import { type Place, PlaceError } from "#src/backups/repository/Place.ts"
import { s3Place } from "#src/backups/repository/s3-place.ts"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Names, NameUnknown } from "#src/outbound/names.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { type Asked, type ObjectStore, objectStore, trust } from "#test/setup/s3.ts"
import { eventually } from "#test/setup/wait.ts"

class Store extends Context.Service<Store, ObjectStore>()("test/ObjectStore") {}

const names = Layer.succeed(Names, (name: string) =>
  name === "metadata.example.test"
    ? Effect.succeed(["169.254.169.254"])
    : name === "s3.example.test" || name === "other.example.test"
      ? Effect.succeed(["127.0.0.1"])
      : Effect.fail(new NameUnknown({ message: `The name ${name} has no address` }))
)
const connection = (outboundAllow = ["127.0.0.0/8", "::1/128"]) =>
  Layer.fresh(DestinationConnection.layer).pipe(
    Layer.provide(AppConfig.layerWith({ outboundAllow })),
    Layer.provide(names),
    Layer.provide(CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer)))
  )
const store = Layer.effect(
  Store,
  Effect.tap(objectStore, ({ caPem }) => Effect.sync(() => trust(caPem)))
)
const world = Layer.mergeAll(Layer.provideMerge(connection(), store), Logger.layer([]))

const place = Effect.fnUntraced(function* (
  values: Partial<DestinationConfig> = {},
  options: ConnectionOptions & { readonly alwaysInParts?: boolean; readonly patience?: number } = {}
) {
  const { config } = yield* Store
  const connections = yield* DestinationConnection
  const wanted = config(values)
  return s3Place("d1", wanted, yield* connections.open(wanted, options), options)
})
const bytes = (...parts: ReadonlyArray<string>) => Stream.fromIterable(parts.map((part) => Buffer.from(part)))
const text = (one: Place, key: string) =>
  Effect.map(Stream.runCollect(one.get(key)), (chunks) => Buffer.concat(chunks).toString())
const keys = (one: Place, prefix: string) =>
  Effect.map(Stream.runCollect(one.list(prefix)), (found) => found.map(({ key }) => key))
const reasonOf = <A, R>(self: Effect.Effect<A, PlaceError, R>) =>
  Effect.map(Effect.flip(self), ({ reason }) => reason)

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
const times = (
  count: number,
  matches: (asked: Asked) => boolean,
  trouble: ReturnType<ObjectStore["trouble"]>
) => {
  let left = count
  return (asked: Asked) => (matches(asked) && left-- > 0 ? trouble : undefined)
}

layer(world, { excludeTestServices: true, timeout: "5 minutes" })("a bucket", (it) => {
  it.effect("keeps objects, tells what is there and forgets what is removed", () =>
    Effect.gen(function* () {
      const one = yield* place({ prefix: "here/and there" })
      assert.deepStrictEqual(yield* one.put("a/1", bytes("hello ", "world")), { bytes: 11 })
      assert.deepStrictEqual(yield* one.put("a/2", bytes("x")), { bytes: 1 })
      assert.deepStrictEqual(yield* one.put("b", Stream.empty), { bytes: 0 })
      assert.strictEqual(yield* text(one, "a/1"), "hello world")
      assert.strictEqual(yield* text(one, "b"), "")
      assert.deepStrictEqual(yield* keys(one, "a/"), ["a/1", "a/2"])
      assert.deepStrictEqual(yield* Stream.runCollect(one.list("a/1")), [{ key: "a/1", bytes: 11 }])
      yield* one.put("a/1", bytes("again"))
      assert.strictEqual(yield* text(one, "a/1"), "again")
      // What another part of the bucket holds is not seen from here.
      const other = yield* place({ prefix: "here" })
      assert.deepStrictEqual(yield* keys(other, ""), ["and there/a/1", "and there/a/2", "and there/b"])
      yield* one.remove(["a/1", "a/2", "b", "never"])
      assert.deepStrictEqual(yield* keys(one, ""), [])
      assert.strictEqual(yield* reasonOf(text(one, "a/1")), "not_found")
    })
  )

  it.effect("tells what is wrong with a configuration", () =>
    Effect.gen(function* () {
      const far = yield* Store
      const failing = (values: Partial<DestinationConfig>, options: ConnectionOptions = { attempts: 1 }) =>
        reasonOf(Effect.flatMap(place(values, options), (one) => one.put("x", bytes("x"))))
      assert.strictEqual(yield* failing({ secretAccessKey: Redacted.make("wrong") }), "credentials")
      assert.strictEqual(yield* failing({ accessKeyId: "test:nobody" }), "credentials")
      assert.strictEqual(yield* failing({ bucket: "nothere" }), "bucket")
      assert.strictEqual(yield* failing({ region: "eu-west-1" }), "region")
      const { accessKeyId, secretAccessKey } = far.powerless
      assert.strictEqual(
        yield* failing({ accessKeyId, secretAccessKey: Redacted.make(secretAccessKey) }),
        "write"
      )
      const { port } = new URL(far.endpoint)
      assert.strictEqual(yield* failing({ endpoint: `https://nobody.example.test:${port}` }), "dns")
      assert.strictEqual(yield* failing({ endpoint: "https://metadata.example.test" }), "blocked_address")
      assert.strictEqual(yield* failing({ endpoint: "https://169.254.169.254" }), "blocked_address")
      assert.strictEqual(yield* failing({ endpoint: "https://[::ffff:10.0.0.1]" }), "blocked_address")
      assert.strictEqual(yield* failing({ endpoint: `https://127.0.0.2:${port}` }), "unreachable")
      // The certificate is for other names.
      assert.strictEqual(yield* failing({ endpoint: `https://other.example.test:${port}` }), "tls")
      assert.strictEqual(yield* during(() => "late", failing({})), "clock")
      const forbidden = { status: 403, code: "AccessDenied" }
      const one = yield* place({}, { attempts: 1 })
      yield* one.put("kept", bytes("x"))
      const deleting = reasonOf(one.remove(["kept"]))
      assert.strictEqual(
        yield* during(({ method }) => (method === "DELETE" ? forbidden : undefined), deleting),
        "delete"
      )
      assert.strictEqual(yield* during(() => forbidden, reasonOf(text(one, "kept"))), "read")
      assert.strictEqual(
        yield* during(() => ({ status: 403, code: "QuotaExceeded" }), failing({})),
        "no_space"
      )
      assert.strictEqual(
        yield* during(() => ({ status: 200, text: "<html>hello" }), reasonOf(keys(one, ""))),
        "unreachable"
      )
      assert.strictEqual(yield* during(() => "silence", failing({}, { attempts: 1, idleMs: 300 })), "timeout")
    })
  )

  it.effect("may answer without end: no more is read than anybody can want", () =>
    Effect.gen(function* () {
      const far = yield* Store
      const one = yield* place({ prefix: "flood" }, { attempts: 1 })
      yield* one.put("kept", bytes("x"))
      const flooding = <A>(
        status: number,
        matches: (asked: Asked) => boolean,
        self: Effect.Effect<A, PlaceError>
      ) =>
        Effect.gen(function* () {
          far.flooded = 0
          const error = yield* during(
            (asked) => (matches(asked) ? { flood: status } : undefined),
            Effect.flip(self)
          )
          assert.isAbove(far.flooded, 0)
          // What sockets hold besides what was read.
          assert.isBelow(far.flooded >> 20, 32)
          return error
        })
      const gets = ({ method, url }: Asked) => method === "GET" && url.includes("svc-access-test")
      const probe = yield* flooding(200, gets, checkAccess(one, one))
      assert.strictEqual(probe.reason, "read")
      assert.match(probe.message, /what was read is not what was written/)
      const all = () => true
      assert.match((yield* flooding(200, all, keys(one, ""))).message, /answer has no end/)
      assert.match((yield* flooding(404, all, text(one, "kept"))).message, /answer has no end/)
      assert.match((yield* flooding(200, all, one.remove(["kept"]))).message, /answer has no end/)
      const parts = yield* place({ prefix: "flood" }, { attempts: 1, alwaysInParts: true })
      assert.match((yield* flooding(200, all, parts.put("y", bytes("y")))).message, /answer has no end/)
    })
  )

  it.effect("is reached by a name whose addresses were judged, and with a certificate that is trusted", () =>
    Effect.gen(function* () {
      const far = yield* Store
      const { port } = new URL(far.endpoint)
      const named = far.config({ endpoint: `https://s3.example.test:${port}` })
      const putWith = (layers: ReturnType<typeof connection>) =>
        Effect.gen(function* () {
          const { open } = yield* DestinationConnection
          return yield* s3Place("d1", named, yield* open(named, { attempts: 1 })).put("x", bytes("x"))
        }).pipe(Effect.provide(Layer.orDie(layers)))
      assert.deepStrictEqual(yield* putWith(connection()), { bytes: 1 })
      assert.strictEqual(yield* reasonOf(putWith(connection([]))), "blocked_address")
      const trusted = tls.getCACertificates("default")
      tls.setDefaultCACertificates(trusted.filter((pem) => pem !== far.caPem))
      const stranger = yield* Effect.ensuring(
        reasonOf(putWith(connection())),
        Effect.sync(() => tls.setDefaultCACertificates(trusted))
      )
      assert.strictEqual(stranger, "tls")
    })
  )

  it.effect("takes what is large in parts, and shows nothing of what was given up", () =>
    Effect.gen(function* () {
      const far = yield* Store
      const one = yield* place({ prefix: "large" })
      const chunk = randomBytes(1 << 20)
      const chunks = (count: number) => Stream.map(Stream.range(1, count), () => chunk)
      const digest = (count: number) => {
        const hash = createHash("sha256")
        for (let i = 0; i < count; i++) hash.update(chunk)
        return hash.digest("hex")
      }
      assert.deepStrictEqual(yield* one.put("40", chunks(40)), { bytes: 40 << 20 })
      const hash = createHash("sha256")
      yield* Stream.runForEach(one.get("40"), (part) => Effect.sync(() => void hash.update(part)))
      assert.strictEqual(hash.digest("hex"), digest(40))
      assert.deepStrictEqual(yield* Stream.runCollect(one.list("")), [{ key: "40", bytes: 40 << 20 }])

      // Of exactly one part, and a byte more.
      assert.deepStrictEqual(yield* one.put("even", chunks(8)), { bytes: 8 << 20 })
      assert.deepStrictEqual(yield* one.put("odd", Stream.concat(chunks(8), bytes("x"))), {
        bytes: (8 << 20) + 1
      })
      assert.deepStrictEqual(yield* Stream.runCollect(one.list("odd")), [
        { key: "odd", bytes: (8 << 20) + 1 }
      ])

      // The source fails, the store stops answering, the upload is interrupted: half an object is none.
      const broken = Stream.concat(
        chunks(20),
        Stream.fail(new PlaceError({ reason: "read", message: "gone" }))
      )
      assert.strictEqual(yield* reasonOf(one.put("half", broken)), "read")
      const impatient = yield* place({ prefix: "impatient" }, { attempts: 1, idleMs: 300 })
      const silent = ({ url }: Asked) => (url.includes("partNumber=") ? "silence" : undefined)
      let taken = 0
      const counted = Stream.tap(chunks(100), () => Effect.sync(() => void taken++))
      assert.strictEqual(yield* during(silent, reasonOf(impatient.put("half", counted))), "timeout")
      // No more is held than the parts that are on their way and the ones that come next.
      assert.isBelow(taken, 60)
      // (Whoever waits so little may not learn of an upload that was begun.)
      const open = Effect.promise(() => far.openUploads("large/"))
      assert.strictEqual(yield* open, 0)
      const before = far.requests.length
      const going = yield* Effect.forkChild(one.put("half", Stream.concat(chunks(20), Stream.never)))
      // With its parts comes the proof that whoever sends them knows of the upload.
      yield* eventually(
        "a part is on its way",
        Effect.sync(() => far.requests.slice(before).some(({ url }) => url.includes("partNumber="))),
        (sent) => sent
      )
      yield* Fiber.interrupt(going)
      assert.deepStrictEqual(yield* keys(one, "half"), [])
      assert.strictEqual(yield* open, 0)
    })
  )

  it.effect("is used on through trouble that passes", () =>
    Effect.gen(function* () {
      const one = yield* place({ prefix: "trouble" })
      const content = randomBytes(9 << 20)
      const put = one.put("x", Stream.make(content))
      const upload = ({ method, url }: Asked) => method === "PUT" && url.includes("partNumber")
      yield* during(times(2, upload, { status: 503, code: "SlowDown" }), put)
      yield* during(times(2, upload, { status: 500 }), put)
      yield* during(times(2, upload, { resetAfter: 1 << 20 }), put)
      const read = ({ method, url }: Asked) => method === "GET" && url.includes("trouble/x")
      const whole = Effect.map(Stream.runCollect(one.get("x")), (parts) =>
        Buffer.concat(parts).equals(content)
      )
      assert.isTrue(yield* during(times(3, read, { cutAfter: 3 << 20 }), whole))
      assert.isTrue(yield* during(times(1, read, { status: 503, code: "SlowDown" }), whole))
      // An object that changed meanwhile is not patched together from two.
      const changing = Stream.runForEach(
        one.get("x"),
        (() => {
          let first = true
          return () => {
            if (!first) return Effect.void
            first = false
            return Effect.asVoid(one.put("x", Stream.make(randomBytes(9 << 20))))
          }
        })()
      )
      const cut = times(1, read, { cutAfter: 3 << 20 })
      assert.include(["unreachable", "not_found", "read"], yield* during(cut, reasonOf(changing)))
      // What does not pass ends with its name.
      const brief = yield* place({}, { attempts: 2 })
      assert.strictEqual(
        yield* during(() => ({ status: 503, code: "SlowDown" }), reasonOf(brief.put("y", bytes("y")))),
        "unreachable"
      )
    })
  )
})
