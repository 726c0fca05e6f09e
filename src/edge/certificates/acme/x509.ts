/** What ACME needs of X.509: keys, requests for certificates, chains, and the names that renewal information goes by. */
import { createHash, createPrivateKey, generateKeyPair, X509Certificate } from "node:crypto"
import { promisify } from "node:util"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"

/** The library takes a tenth of a second to load and is needed a few times a day. */
const load = async () => {
  await import("reflect-metadata")
  return await import("@peculiar/x509")
}

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const
const generate = promisify(generateKeyPair)

/** A private key on P-256, PKCS #8 in PEM. */
export const newPrivateKey = Effect.promise(async () => {
  const { privateKey } = await generate("ec", { namedCurve: "P-256" })
  return Redacted.make(privateKey.export({ type: "pkcs8", format: "pem" }).toString())
})

/** A request for a certificate of one name (RFC 2986): DER in base64url. */
export const csrOf = (name: string, privateKeyPem: Redacted.Redacted) =>
  Effect.promise(async () => {
    const x509 = await load()
    const der = createPrivateKey(Redacted.value(privateKeyPem)).export({ type: "pkcs8", format: "der" })
    const jwk = createPrivateKey(Redacted.value(privateKeyPem)).export({ format: "jwk" })
    const keys = {
      privateKey: await crypto.subtle.importKey("pkcs8", der, algorithm, false, ["sign"]),
      publicKey: await crypto.subtle.importKey(
        "jwk",
        { kty: jwk.kty ?? "", crv: jwk.crv ?? "", x: jwk.x ?? "", y: jwk.y ?? "" },
        algorithm,
        true,
        ["verify"]
      )
    }
    const request = await x509.Pkcs10CertificateRequestGenerator.create({
      keys,
      signingAlgorithm: algorithm,
      extensions: [new x509.SubjectAlternativeNameExtension([{ type: "dns", value: name }])]
    })
    return Buffer.from(request.rawData).toString("base64url")
  })

export interface Chain {
  /** PEM, the leaf first, and nothing else. */
  readonly pem: string
  /** SHA-256 of the leaf in hexadecimal. */
  readonly fingerprint: string
  readonly notBefore: Date
  readonly notAfter: Date
}

const certificates = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g

/**
 * A chain for this name and key, or why it is none. Whatever else the text holds is left out, so that no CA and no file
 * puts something into what a server loads (RFC 8555, section 11.4).
 */
export const chainOf = (
  text: string,
  name: string,
  privateKeyPem: Redacted.Redacted
): Chain | { readonly fault: string } => {
  const blocks = text.match(certificates) ?? []
  const [first] = blocks
  if (first === undefined) return { fault: "holds no certificate" }
  let leaf: X509Certificate
  let belongs: boolean
  try {
    leaf = new X509Certificate(first)
    belongs = leaf.checkPrivateKey(createPrivateKey(Redacted.value(privateKeyPem)))
  } catch {
    return { fault: "holds a certificate or a key that cannot be read" }
  }
  if (!belongs) return { fault: "is for another key" }
  if (leaf.checkHost(name.replace(/^\*\./, "any-name.")) === undefined) {
    return { fault: `is not for ${name}` }
  }
  return {
    pem: `${blocks.map((block) => block.trim()).join("\n")}\n`,
    fingerprint: createHash("sha256").update(leaf.raw).digest("hex"),
    notBefore: leaf.validFromDate,
    notAfter: leaf.validToDate
  }
}

/** A third of its life is left then. */
export const renewAtOf = ({ notBefore, notAfter }: Pick<Chain, "notBefore" | "notAfter">): Date =>
  new Date(notAfter.getTime() - (notAfter.getTime() - notBefore.getTime()) / 3)

/** How renewal information calls a certificate (RFC 9773, section 4.1); undefined: it does not name its authority's key. */
export const certificateIdOf = (chainPem: string) =>
  Effect.promise(async () => {
    const [first = ""] = chainPem.match(certificates) ?? []
    const x509 = await load()
    const leaf = new x509.X509Certificate(first)
    const authority = leaf.getExtension(x509.AuthorityKeyIdentifierExtension)?.keyId
    if (authority === undefined) return undefined
    // The bytes of the DER integer: one whose first bit is set has a zero before it.
    const hex = leaf.serialNumber.length % 2 === 1 ? `0${leaf.serialNumber}` : leaf.serialNumber
    const serial = Number.parseInt(hex.slice(0, 2), 16) >= 0x80 ? `00${hex}` : hex
    const encoded = (text: string) => Buffer.from(text, "hex").toString("base64url")
    return `${encoded(authority)}.${encoded(serial)}`
  })
