/**
 * The platform's own certificate authority. It is made once, kept sealed in the store, and signs the certificates
 * of managed servers, and those of the edge where no public authority is set; clients that trust its certificate
 * verify every connection.
 *
 * Keys are ECDSA on P-256. The authority lasts ten years and may sign leaves only (path length 0). A leaf
 * lasts 90 days, names hosts in its subject alternative name alone (RFC 9525) and may serve TLS, nothing else.
 */
import { randomBytes, X509Certificate } from "node:crypto"
import * as net from "node:net"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { PlatformSecrets } from "#src/store/Secrets.ts"

class CertificateError extends Schema.TaggedError<CertificateError>()("CertificateError", {
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

export interface IssuedCertificate {
  readonly certificatePem: string
  readonly privateKeyPem: Redacted.Redacted
  readonly expiresAt: Date
}

/** What can be read from a certificate found on disk. */
export interface InspectedCertificate {
  readonly expiresAt: Date
  /** Whether this authority signed it. */
  readonly trusted: boolean
  /** Whether a client that connects to `host` accepts it. */
  readonly covers: (host: string) => boolean
}

const day = 86_400_000
const authorityLifetime = 3650 * day
const leafLifetime = 90 * day
/** Clients whose clock is behind ours must accept a certificate that was just made. */
const backdate = 5 * 60_000
const secretName = "certificate-authority"
const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const

const Stored = Schema.fromJsonString(
  Schema.Struct({ certificatePem: Schema.String, privateKeyPem: Schema.String })
)

export class CertificateAuthority extends Context.Service<
  CertificateAuthority,
  {
    /** Certificate of the authority: what clients have to trust. */
    readonly caPem: string
    /** Signs a new key for these host names and IP addresses. */
    readonly issue: (request: {
      /** A host name may be a wildcard, `*.example.com`. */
      readonly hosts: readonly [string, ...ReadonlyArray<string>]
      /** For people who look at it: its common name, which no client checks. */
      readonly subject?: string
    }) => Effect.Effect<IssuedCertificate, CertificateError>
    /** Reads the first certificate of a PEM text; none when there is none that can be read. */
    readonly inspect: (pem: string) => Option.Option<InspectedCertificate>
  }
>()("svc/infra/CertificateAuthority") {
  static readonly layer = Layer.effect(
    CertificateAuthority,
    Effect.gen(function* () {
      const platform = yield* PlatformSecrets
      const sealed = yield* platform.ensure(secretName, makeAuthority)
      const stored = yield* Effect.mapError(
        Schema.decodeEffect(Stored)(Redacted.value(sealed)),
        // The parser's message would quote the private key.
        () => new CertificateError({ message: `The platform secret "${secretName}" is damaged` })
      )
      const authority = new X509Certificate(stored.certificatePem)

      return CertificateAuthority.of({
        caPem: stored.certificatePem,
        issue: Effect.fn("CertificateAuthority.issue")(function* ({ hosts, subject = "Managed server" }) {
          const now = yield* Clock.currentTimeMillis
          // A leaf that outlived its authority would fail long before its own date says so.
          const expiresAt = new Date(Math.min(now + leafLifetime, authority.validToDate.getTime()))
          return yield* signing(`Cannot issue a certificate for ${hosts.join(", ")}`, async (x509) => {
            const keys = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"])
            const issuer = new x509.X509Certificate(stored.certificatePem)
            const certificate = await x509.X509CertificateGenerator.create({
              serialNumber: serialNumber(),
              // A common name has at most 64 characters (RFC 5280, appendix A.1).
              subject: [{ CN: [subject.slice(0, 64)] }],
              issuer: issuer.subjectName,
              notBefore: new Date(now - backdate),
              notAfter: expiresAt,
              publicKey: keys.publicKey,
              signingKey: await importKey(stored.privateKeyPem),
              signingAlgorithm: algorithm,
              extensions: [
                new x509.BasicConstraintsExtension(false, undefined, true),
                new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
                new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
                new x509.SubjectAlternativeNameExtension(
                  hosts.map((host) => ({ type: net.isIP(host) === 0 ? "dns" : "ip", value: host }))
                ),
                await x509.AuthorityKeyIdentifierExtension.create(issuer.publicKey),
                await x509.SubjectKeyIdentifierExtension.create(keys.publicKey)
              ]
            })
            return {
              certificatePem: pem(certificate.toString("pem")),
              privateKeyPem: Redacted.make(await exportKey(keys.privateKey)),
              expiresAt: certificate.notAfter
            }
          })
        }),
        inspect: (text) =>
          Option.map(parse(text), (certificate) => ({
            expiresAt: certificate.validToDate,
            trusted: certificate.checkIssued(authority) && certificate.verify(authority.publicKey),
            covers: (host) =>
              (net.isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host)) !== undefined
          }))
      })
    })
  )
}

/** What managed servers of this machine are called: by settings, from within containers, and by who works on it. */
export const certificateNames = (
  managedHost: string,
  inContainers: string | undefined
): readonly [string, ...ReadonlyArray<string>] => {
  const others = [...(inContainers === undefined ? [] : [inContainers]), "localhost", "127.0.0.1"]
  return [managedHost, ...new Set(others.filter((name) => name !== managedHost))]
}

/** When a certificate ends; none when the text holds no certificate that can be read. */
export const notAfter = (pemText: string): Option.Option<Date> =>
  Option.map(parse(pemText), (certificate) => certificate.validToDate)

const parse = Option.liftThrowable((text: string) => new X509Certificate(text))

const makeAuthority = Effect.gen(function* () {
  const now = yield* Clock.currentTimeMillis
  const made = yield* signing("Cannot make the certificate authority", async (x509) => {
    const keys = await crypto.subtle.generateKey(algorithm, true, ["sign", "verify"])
    const certificate = await x509.X509CertificateGenerator.createSelfSigned({
      serialNumber: serialNumber(),
      name: "CN=Managed servers",
      notBefore: new Date(now - backdate),
      notAfter: new Date(now + authorityLifetime),
      keys,
      signingAlgorithm: algorithm,
      extensions: [
        new x509.BasicConstraintsExtension(true, 0, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey)
      ]
    })
    return {
      certificatePem: pem(certificate.toString("pem")),
      privateKeyPem: await exportKey(keys.privateKey)
    }
  })
  return Redacted.make(yield* Effect.orDie(Schema.encodeEffect(Stored)(made)))
})

/** The library takes a tenth of a second to load and is needed a few times a day: it is loaded on first use. */
const signing = <A>(message: string, body: (x509: typeof import("@peculiar/x509")) => Promise<A>) =>
  Effect.tryPromise({
    try: async () => {
      await import("reflect-metadata")
      return await body(await import("@peculiar/x509"))
    },
    catch: (cause) => new CertificateError({ message, cause })
  })

/** 126 random bits; the first byte keeps the number positive and its length fixed (RFC 5280, section 4.1.2.2). */
const serialNumber = (): string => {
  const bytes = randomBytes(16)
  bytes[0] = (bytes[0]! & 0x7f) | 0x40
  return bytes.toString("hex")
}

const pem = (text: string): string => `${text.trimEnd()}\n`

const exportKey = async (key: CryptoKey): Promise<string> => {
  const der = Buffer.from(await crypto.subtle.exportKey("pkcs8", key))
  const lines = der.toString("base64").match(/.{1,64}/g) ?? []
  return `-----BEGIN PRIVATE KEY-----\n${lines.join("\n")}\n-----END PRIVATE KEY-----\n`
}

const importKey = (text: string): Promise<CryptoKey> =>
  crypto.subtle.importKey(
    "pkcs8",
    Buffer.from(text.replace(/-----[A-Z ]+-----|\s/g, ""), "base64"),
    algorithm,
    false,
    ["sign"]
  )
