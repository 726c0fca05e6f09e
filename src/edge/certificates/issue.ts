/**
 * What is done for a certificate whose time has come: who issues it, whether another one is needed, and when to look
 * again. What fails leaves what is served as it is.
 */
import { createHash, X509Certificate } from "node:crypto"
import * as fs from "node:fs/promises"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import * as Redacted from "effect/Redacted"
import { Resolver } from "#src/domains/dns/Resolver.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { settings as edgeSettings } from "../settings.ts"
import { type AcmeClient, makeAcmeClient } from "./acme/AcmeClient.ts"
import { AcmeError } from "./acme/errors.ts"
import { accountKeyOf } from "./acme/jws.ts"
import { isOver, type Ordered, obtain } from "./acme/order.ts"
import { makeTransport } from "./acme/transport.ts"
import { certificateIdOf, chainOf, newPrivateKey, renewAtOf } from "./acme/x509.ts"
import type { Issuer } from "./Certificates.ts"
import { rfc2136 } from "./dns/rfc2136.ts"
import { isFinal } from "./errors.ts"
import { type CertificateJob, makeCertificateJobs, type Obtained, type Outcome } from "./jobs.ts"
import { type AcmeSettings, certificateSettings } from "./settings.ts"

/** Between looks at the operator's files, in seconds. */
const filesEvery = 600
/** Between looks at what an authority advises, in seconds, where it does not say. */
const adviceEvery = 6 * 3600
/** A renewal that was refused for good is tried again all the same: until it runs out things may change. */
const refusedRenewalEvery = 12 * 3600
/** Of an authority that cannot be reached, in seconds. */
const outage = { first: 15, longest: 900 }
/** Of one that refuses: authorities count failed proofs, Let's Encrypt five an hour. */
const refusal = { first: 120, longest: 6 * 3600 }
const outageTypes: ReadonlySet<string> = new Set([
  "unreachable",
  "serverInternal",
  "answer",
  "badNonce",
  "internal"
])

/** Who is to issue what, by the settings. */
export class Issuers extends Context.Service<
  Issuers,
  {
    /** The name of the certificate for every managed address. */
    readonly wildcard: string
    readonly issuerOf: (name: string) => Issuer
    readonly acme: AcmeSettings | undefined
    readonly appsFiles: { readonly chain: string; readonly key: string } | undefined
  }
>()("svc/edge/Issuers") {
  static readonly layer = Layer.effect(
    Issuers,
    Effect.gen(function* () {
      const { appsDomain } = yield* edgeSettings
      const { acme, appsFiles } = yield* certificateSettings
      const wildcard = `*.${appsDomain}`
      return Issuers.of({
        wildcard,
        issuerOf: (name) => {
          if (name === wildcard && appsFiles !== undefined) return "operator"
          // A wildcard is proved by DNS alone (RFC 8555, section 7.4.1, and every public authority's rules).
          const provable = !name.startsWith("*.") || acme?.dns !== undefined
          return acme !== undefined && provable ? "acme" : "internal"
        },
        acme,
        appsFiles
      })
    })
  )
}

/** Something other than an ACME server failed. */
const failure = (message: string, type: string) => new AcmeError({ message, type })

export const makeIssue = Effect.gen(function* () {
  const authority = yield* CertificateAuthority
  const resolver = yield* Resolver
  const jobs = yield* makeCertificateJobs
  const { issuerOf, acme, appsFiles } = yield* Issuers
  const client = acme === undefined ? undefined : yield* makeClient(acme)
  const dns = acme?.dns === undefined ? undefined : rfc2136(acme.dns)

  const internal = Effect.fnUntraced(function* ({ name }: CertificateJob) {
    const issued = yield* Effect.mapError(authority.issue({ hosts: [name], subject: name }), ({ message }) =>
      failure(message, "internal")
    )
    const certificate = yield* checked(issued.certificatePem, name, issued.privateKeyPem, "internal")
    return { _tag: "Issued", certificate, again: undefined } as const
  })

  const operator = Effect.fnUntraced(function* (
    { name, fingerprint, issuer }: CertificateJob,
    files: NonNullable<typeof appsFiles>
  ) {
    const read = (file: string) =>
      Effect.tryPromise({
        try: () => fs.readFile(file, "utf8"),
        catch: () => failure(`The file ${file} cannot be read`, "settings")
      })
    const key = Redacted.make(yield* read(files.key))
    const certificate = {
      ...(yield* checked(yield* read(files.chain), name, key, "operator", `The file ${files.chain}`)),
      // Whoever writes the files does.
      renewAt: undefined
    }
    return certificate.fingerprint === fingerprint && issuer === "operator"
      ? ({ _tag: "Kept", renewAt: undefined, again: filesEvery } as const)
      : ({ _tag: "Issued", certificate, again: filesEvery } as const)
  })

  const byAcme = Effect.fnUntraced(function* (
    job: CertificateJob,
    due: boolean,
    client: AcmeClient,
    orgOrders: number
  ) {
    if (!due && job.chain !== undefined) return yield* advised(client, job, job.chain)
    const done: Ordered = yield* obtain(
      { client, jobs, resolver: resolver.of(job.orgId), dns, orgOrders },
      job
    )
    if (done._tag === "UnderWay") {
      const { again, error } = done
      return error === undefined
        ? ({ _tag: "Waiting", again } as const)
        : ({ _tag: "Waiting", again, error } as const)
    }
    const { renewalInfo } = yield* client.directory
    const again = renewalInfo === undefined ? undefined : adviceEvery
    return { _tag: "Issued", certificate: done.certificate, again } as const
  })

  return (job: CertificateJob) =>
    Effect.gen(function* () {
      const issuer = issuerOf(job.name)
      const due =
        job.due || job.issuer !== issuer || (issuer === "acme" && job.directory !== client?.directoryUrl)
      if (issuer === "operator" && appsFiles !== undefined) return yield* operator(job, appsFiles)
      if (issuer === "acme" && client !== undefined && acme !== undefined)
        return yield* byAcme(job, due, client, acme.orgOrders)
      return due ? yield* internal(job) : ({ _tag: "Kept", renewAt: job.renewAt, again: undefined } as const)
    }).pipe(
      Effect.map((outcome): Outcome => outcome),
      Effect.catchTag("AcmeError", (error) => failed(job, error))
    )
})

const makeClient = Effect.fnUntraced(function* (acme: AcmeSettings) {
  const secrets = yield* PlatformSecrets
  // An account belongs to a directory, and to whom the operator is bound to there.
  const account = createHash("sha256")
    .update(JSON.stringify([acme.directory, acme.binding?.kid ?? null]))
    .digest("hex")
  const key = yield* secrets.ensure(`acme-account-${account.slice(0, 32)}`, newPrivateKey)
  return makeAcmeClient(yield* makeTransport(acme.extraCa), {
    directoryUrl: acme.directory,
    email: acme.email,
    binding: acme.binding,
    key: accountKeyOf(Redacted.value(key))
  })
})

const checked = (
  text: string,
  name: string,
  privateKeyPem: Redacted.Redacted,
  issuer: Issuer,
  what = "The certificate"
) => {
  const chain = chainOf(text, name, privateKeyPem)
  if ("fault" in chain) return Effect.fail(failure(`${what} ${chain.fault}`, "settings"))
  const { pem, fingerprint, notBefore, notAfter } = chain
  const certificate: Obtained = {
    issuer,
    chain: pem,
    privateKeyPem,
    fingerprint,
    notBefore,
    notAfter,
    renewAt: renewAtOf(chain)
  }
  return Effect.succeed(certificate)
}

/** Advice can hasten a renewal (RFC 9773, section 4.2), and not put it off; without any it comes at its time. */
const advised = Effect.fnUntraced(function* (client: AcmeClient, { name }: CertificateJob, chain: string) {
  const leaf = new X509Certificate(chain)
  const usual = renewAtOf({ notBefore: leaf.validFromDate, notAfter: leaf.validToDate })
  const id = yield* certificateIdOf(chain)
  const advice = yield* (id === undefined ? Effect.succeed(undefined) : client.renewalInfo(id)).pipe(
    Effect.catch((error) => Effect.as(Effect.logDebug(`no advice when to renew ${name}`, error), undefined))
  )
  if (advice === undefined) return { _tag: "Kept", renewAt: usual, again: adviceEvery } as const
  const { start, end } = advice.value
  // Always the same place in the window, so that a look does not move it.
  const place = createHash("sha256").update(name).digest().readUInt32BE() / 2 ** 32
  const suggested = start.getTime() + place * (end.getTime() - start.getTime())
  return {
    _tag: "Kept",
    renewAt: new Date(Math.min(usual.getTime(), suggested)),
    again: Math.min(86_400, Math.max(3600, advice.retryAfter ?? adviceEvery))
  } as const
})

const failed = Effect.fnUntraced(function* (
  { name, chain, failures }: CertificateJob,
  error: AcmeError
): Effect.fn.Return<Outcome> {
  const { message, type, retryAfter } = error
  yield* Effect.logWarning(`there is no new certificate for ${name}: ${message}`, { type })
  const { first, longest } = outageTypes.has(type) ? outage : refusal
  const pause = Math.min(longest, first * 2 ** Math.min(failures, 20)) * (0.75 + 0.5 * (yield* Random.next))
  const patience = isFinal({ message, type })
    ? chain === undefined
      ? undefined
      : refusedRenewalEvery
    : Math.max(pause, retryAfter ?? 0)
  return { _tag: "Failed", error: { message, type }, again: patience, retryAfter, orderIsOver: isOver(error) }
})
