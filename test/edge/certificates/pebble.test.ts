import { X509Certificate } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { Certificates } from "#src/edge/certificates/Certificates.ts"
import { Db } from "#src/store/Db.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"
import { acmeWorld } from "./pebble.ts"
import { handleOf, makeProcess, store } from "./world.ts"

const forbidden = "blocked.customer.test"
/** A host that shows something else than it should. */
const wrong = "wrong.customer.test"

class World extends Context.Service<World, Effect.Success<ReturnType<typeof acmeWorld>>>()("test/AcmeWorld") {
  static readonly layer = Layer.effect(
    World,
    Effect.gen(function* () {
      const certificates = yield* Certificates
      return yield* acmeWorld({
        forbidden,
        answer: async (host, token) =>
          host === wrong
            ? "parked"
            : Option.getOrUndefined(await Effect.runPromise(certificates.keyAuthorization({ host, token })))
      })
    })
  )
}

layer(World.layer.pipe(Layer.provideMerge(store)), { excludeTestServices: true })(
  "certificates of pebble",
  (it) => {
    const clean = Effect.flatMap(Db, ({ engine: sql }) => Effect.orDie(sql`delete from edge_certificate`))
    const verified = (pem: string, { rootPem, intermediatePem }: World["Service"]) => {
      const leaf = new X509Certificate(pem)
      const intermediate = new X509Certificate(intermediatePem)
      const root = new X509Certificate(rootPem)
      assert.isTrue(leaf.verify(intermediate.publicKey) && intermediate.verify(root.publicKey))
      return leaf
    }

    it.effect("a host's name is proved by HTTP, though four of ten nonces are refused, and renewed", () =>
      Effect.gen(function* () {
        yield* clean
        const world = yield* World
        const certificates = yield* Certificates
        const { round } = yield* makeProcess(world.variables)
        const org = yield* makeOrganization()
        const one = yield* handleOf(org.id, "www.customer.test")
        yield* one.want
        yield* round
        const issued = yield* one.find
        assert.deepInclude(issued, { state: "issued", issuer: "acme", error: undefined })
        const [file] = yield* certificates.files([one.name])
        const leaf = verified(Redacted.value(file!.pem), world)
        assert.strictEqual(leaf.checkHost(one.name), one.name)
        yield* one.renewNow
        yield* round
        const renewed = yield* one.find
        assert.isUndefined(renewed.error)
        assert.notStrictEqual(renewed.fingerprint, issued.fingerprint)
      })
    )

    it.effect("what it refuses is told in its own words", () =>
      Effect.gen(function* () {
        yield* clean
        const { variables } = yield* World
        const { round } = yield* makeProcess(variables)
        const org = yield* makeOrganization()
        const [policy, unproved] = [yield* handleOf(org.id, forbidden), yield* handleOf(org.id, wrong)]
        yield* policy.want
        yield* unproved.want
        yield* round
        const refused = yield* policy.find
        assert.deepInclude(refused, { state: "failed", nextLookAt: undefined })
        assert.strictEqual(refused.error?.type, "rejectedIdentifier")
        assert.include(refused.error?.message, forbidden)
        const failed = yield* unproved.find
        assert.strictEqual(failed.state, "pending")
        assert.strictEqual(failed.error?.type, "unauthorized")
        assert.include(failed.error?.message, "parked")
      })
    )

    it.effect("without the operator's binding there is no account, and that is said", () =>
      Effect.gen(function* () {
        yield* clean
        const { variables } = yield* World
        const { SVC_ACME_EAB: _, ...unbound } = variables
        const { round } = yield* makeProcess(unbound)
        const org = yield* makeOrganization()
        const one = yield* handleOf(org.id, "unbound.customer.test")
        yield* one.want
        yield* round
        const { state, error } = yield* one.find
        assert.strictEqual(state, "pending")
        assert.strictEqual(error?.type, "externalAccountRequired")
        assert.include(error?.message, "SVC_ACME_EAB")
      })
    )

    it.effect("a wildcard is proved by a record of the zone, which is removed afterwards", () =>
      Effect.gen(function* () {
        yield* clean
        const world = yield* World
        const certificates = yield* Certificates
        const { round, issuers } = yield* makeProcess({
          ...world.variables,
          SVC_APPS_DOMAIN: "apps.test",
          SVC_ACME_DNS: JSON.stringify(world.dnsSettings)
        })
        assert.strictEqual(issuers.wildcard, "*.apps.test")
        const one = yield* handleOf(null, issuers.wildcard)
        yield* one.want
        yield* round
        const found = yield* one.find
        assert.deepInclude(found, { state: "issued", issuer: "acme", error: undefined })
        const [file] = yield* certificates.files([one.name])
        const leaf = verified(Redacted.value(file!.pem), world)
        assert.strictEqual(leaf.subjectAltName, "DNS:*.apps.test")
        assert.deepStrictEqual(yield* world.texts("_acme-challenge.apps.test"), [])
      })
    )

    it.effect("a name server that refuses the key is told of, and the key is not", () =>
      Effect.gen(function* () {
        yield* clean
        const { variables, dnsSettings } = yield* World
        const secret = Buffer.alloc(32, 7).toString("base64")
        const { round } = yield* makeProcess({
          ...variables,
          SVC_APPS_DOMAIN: "apps.test",
          SVC_ACME_DNS: JSON.stringify({ ...dnsSettings, secret })
        })
        const one = yield* handleOf(null, "*.apps.test")
        yield* one.want
        yield* round
        const { state, error, nextLookAt } = yield* one.find
        assert.strictEqual(state, "pending")
        assert.strictEqual(error?.type, "dnsProvider")
        assert.match(
          error?.message ?? "",
          /127\.0\.0\.1 did not take the record of _acme-challenge\.apps\.test: .*(NOTAUTH|BADSIG|TSIG)/
        )
        assert.notInclude(error?.message, secret)
        assert.isDefined(nextLookAt)
      })
    )
  }
)
