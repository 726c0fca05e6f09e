import { createPrivateKey, X509Certificate } from "node:crypto"
import * as tls from "node:tls"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { CertificateAuthority, type IssuedCertificate, notAfter } from "#src/infra/CertificateAuthority.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"

const day = 86_400_000

const withAuthority = <A, E, R>(
  secrets: ReturnType<typeof memorySecrets>,
  body: Effect.Effect<A, E, R | CertificateAuthority>
) => body.pipe(Effect.provide(CertificateAuthority.layer.pipe(Layer.provide(secrets.layer)), { local: true }))

it.live("the authority is made once and found again by the next control plane", () =>
  Effect.gen(function* () {
    const secrets = memorySecrets()
    const first = yield* withAuthority(
      secrets,
      Effect.map(CertificateAuthority, (ca) => ca.caPem)
    )
    const second = yield* withAuthority(
      secrets,
      Effect.map(CertificateAuthority, (ca) => ca.caPem)
    )
    assert.strictEqual(second, first)
    const certificate = new X509Certificate(first)
    assert.isTrue(certificate.ca)
    assert.isTrue(certificate.verify(certificate.publicKey), "signed by itself")
    assert.isAbove(certificate.validToDate.getTime(), Date.now() + 3640 * day)
    assert.strictEqual(certificate.publicKey.asymmetricKeyDetails?.namedCurve, "prime256v1")
  })
)

it.live("a leaf names its hosts, serves TLS only and lasts 90 days", () =>
  withAuthority(
    memorySecrets(),
    Effect.gen(function* () {
      const ca = yield* CertificateAuthority
      const issued = yield* ca.issue({ hosts: ["cache.example.test", "127.0.0.1", "::1"] })
      const leaf = new X509Certificate(issued.certificatePem)
      assert.strictEqual(
        leaf.subjectAltName,
        "DNS:cache.example.test, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1"
      )
      assert.isFalse(leaf.ca)
      assert.deepStrictEqual(leaf.keyUsage, ["1.3.6.1.5.5.7.3.1"])
      assert.isTrue(leaf.checkIssued(new X509Certificate(ca.caPem)))
      assert.isTrue(leaf.checkPrivateKey(createPrivateKey(Redacted.value(issued.privateKeyPem))))
      assert.approximately(issued.expiresAt.getTime(), Date.now() + 90 * day, day / 24)
      assert.deepStrictEqual(Option.getOrUndefined(notAfter(issued.certificatePem)), issued.expiresAt)
      assert.isBelow(leaf.validFromDate.getTime(), Date.now(), "a clock that is a little behind accepts it")
      const other = yield* ca.issue({ hosts: ["127.0.0.1"] })
      assert.notStrictEqual(new X509Certificate(other.certificatePem).serialNumber, leaf.serialNumber)
    })
  )
)

it.live("a client that trusts the authority verifies the server, and one that does not refuses it", () =>
  withAuthority(
    memorySecrets(),
    Effect.gen(function* () {
      const ca = yield* CertificateAuthority
      const port = yield* serve(yield* ca.issue({ hosts: ["127.0.0.1"] }))
      assert.strictEqual(yield* connect(port, { ca: ca.caPem }), "authorized")
      assert.strictEqual(yield* connect(port, {}), "UNABLE_TO_VERIFY_LEAF_SIGNATURE")
      const elsewhere = yield* serve(yield* ca.issue({ hosts: ["elsewhere.example.test"] }))
      assert.strictEqual(yield* connect(elsewhere, { ca: ca.caPem }), "ERR_TLS_CERT_ALTNAME_INVALID")
    })
  )
)

it.live("an inspected certificate tells who signed it and which hosts it covers", () =>
  Effect.gen(function* () {
    const foreign = yield* withAuthority(
      memorySecrets(),
      Effect.flatMap(CertificateAuthority, (ca) => ca.issue({ hosts: ["127.0.0.1"] }))
    )
    yield* withAuthority(
      memorySecrets(),
      Effect.gen(function* () {
        const ca = yield* CertificateAuthority
        const own = yield* ca.issue({ hosts: ["cache.example.test", "127.0.0.1"] })
        const inspected = Option.getOrThrow(ca.inspect(own.certificatePem))
        assert.isTrue(inspected.trusted)
        assert.isTrue(inspected.covers("127.0.0.1"))
        assert.isTrue(inspected.covers("cache.example.test"))
        assert.isFalse(inspected.covers("127.0.0.2"))
        assert.isFalse(inspected.covers("other.example.test"))
        assert.isFalse(Option.getOrThrow(ca.inspect(foreign.certificatePem)).trusted, "same name, other key")
        assert.isTrue(Option.isNone(ca.inspect("no certificate")))
        assert.isTrue(Option.isNone(notAfter("")))
      })
    )
  })
)

const serve = (issued: IssuedCertificate) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<tls.Server>((resume) => {
        const server = tls.createServer({
          cert: issued.certificatePem,
          key: Redacted.value(issued.privateKeyPem)
        })
        server.on("tlsClientError", () => undefined)
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) => Effect.sync(() => server.close())
    ),
    (server) => {
      const address = server.address()
      return address !== null && typeof address === "object" ? address.port : 0
    }
  )

const connect = (port: number, options: { readonly ca?: string }) =>
  Effect.callback<string>((resume) => {
    const socket = tls.connect({ host: "127.0.0.1", port, ...options }, () => {
      resume(Effect.succeed(socket.authorized ? "authorized" : "unverified"))
      socket.end()
    })
    socket.once("error", (error: NodeJS.ErrnoException) =>
      resume(Effect.succeed(error.code ?? error.message))
    )
  })
