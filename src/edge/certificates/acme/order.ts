/**
 * Getting a certificate from an ACME server, from wherever it stands: each pass looks at the order and takes the next
 * step. Killed anywhere, it goes on from there, because the order and its key are stored before anything is proved for
 * it. (Killed between the server's answer to a new order and our storing it, one order is left unused: the server forgets
 * it, or gives it out again.)
 */
import { createHash } from "node:crypto"
import * as Clock from "effect/Clock"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import type { DnsResolver } from "#src/domains/dns/Resolver.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { caaRefusal } from "../caa.ts"
import type { DnsProvider } from "../dns/DnsProvider.ts"
import type { CertificateError } from "../errors.ts"
import type { CertificateJob, CertificateJobs, Obtained, StoredOrder } from "../jobs.ts"
import type { OrderWait } from "../order-limits.ts"
import type { AcmeClient, Authorization, Challenge, Order } from "./AcmeClient.ts"
import { AcmeError, typeOf, wordsOf } from "./errors.ts"
import { certificateIdOf, chainOf, csrOf, newPrivateKey, renewAtOf } from "./x509.ts"

export interface AcmeIssuer {
  readonly client: AcmeClient
  readonly jobs: Pick<CertificateJobs, "keepOrder" | "orderWait" | "putChallenge" | "removeChallenge">
  readonly resolver: Pick<DnsResolver, "caa">
  readonly dns: DnsProvider | undefined
  /** Orders that an organization may place in a while. */
  readonly orgOrders: number
}

/** What a run came to. */
export type Ordered =
  | { readonly _tag: "Obtained"; readonly certificate: Obtained }
  /** The authority is at it, or, with an error that says so, is not asked yet; to be tried again in so many seconds. */
  | { readonly _tag: "UnderWay"; readonly again: number; readonly error?: CertificateError | undefined }

/** An order that leads nowhere any more. */
class OrderOver extends AcmeError {}

/** Time of one run, after which somebody else gets the turn. */
const runMs = 90_000
const firstPauseMs = 250
const longestPauseMs = 5_000
/** An order that the authority works on for longer is given up; until then it is looked at more and more rarely. */
const longestOrderSeconds = 86_400
/** What is further away is not waited for. */
const worthWaitingMs = 20_000

/** Nothing that this run says is stored where its lease is lost, so what it says then is of no account. */
export const obtain = (issuer: AcmeIssuer, job: CertificateJob) =>
  run(issuer, job).pipe(
    Effect.catchTag("LeaseLost", () => Effect.succeed<Ordered>({ _tag: "UnderWay", again: 0 })),
    Effect.catchTag("Limited", ({ seconds, spreadSeconds, error }) =>
      Effect.map(
        Random.next,
        (random): Ordered => ({ _tag: "UnderWay", again: seconds + spreadSeconds * random, error })
      )
    )
  )

const run = Effect.fnUntraced(function* (issuer: AcmeIssuer, job: CertificateJob) {
  const { client } = issuer
  const until = (yield* Clock.currentTimeMillis) + runMs
  const stored = job.order?.directory === client.directoryUrl ? job.order : yield* placeOrder(issuer, job)
  let pause = firstPauseMs
  /** An authority that works on a proof need not say so: one that was accepted in this run is not accepted again. */
  const accepted = new Set<string>()

  const prove = Effect.fnUntraced(function* (order: Order) {
    for (const url of order.authorizations) {
      const { value: authorization, retryAfter } = yield* client.authorization(url)
      if (authorization.status === "valid") continue
      // The order is not invalid yet, and will be.
      if (authorization.status !== "pending") {
        yield* hideProofs(issuer, job, order)
        return yield* new OrderOver(errorOf(authorization.challenges))
      }
      const { challenge, show } = yield* proofOf(issuer, job, authorization)
      if (challenge.status === "pending" && !accepted.has(challenge.url)) {
        yield* show
        yield* client.accept(challenge.url)
        accepted.add(challenge.url)
      }
      return retryAfter
    }
    return undefined
  })
  const step = Effect.gen(function* () {
    const { value: order, retryAfter } = yield* Effect.mapError(client.order(stored.url), orGone)
    switch (order.status) {
      case "pending":
        return { wait: yield* prove(order) }
      case "ready":
        yield* client
          .finalize(order.finalize, yield* csrOf(job.name, stored.privateKeyPem))
          .pipe(Effect.mapError((error) => (keyTypes.has(error.type) ? new OrderOver(error) : error)))
        return { wait: undefined }
      case "processing":
        if (stored.ageSeconds > longestOrderSeconds)
          return yield* new OrderOver({
            message: "The certificate authority has not ended the order within a day",
            type: "answer"
          })
        return {
          wait: retryAfter ?? (stored.ageSeconds < 60 ? undefined : Math.min(900, stored.ageSeconds / 10))
        }
      case "invalid": {
        const why = yield* whyInvalid(client, order)
        yield* hideProofs(issuer, job, order)
        return yield* new OrderOver(why)
      }
      case "valid": {
        const certificate = yield* download(client, job, order, stored)
        yield* hideProofs(issuer, job, order)
        return { certificate }
      }
    }
  })

  for (;;) {
    const done = yield* step
    if (done.certificate !== undefined) {
      return { _tag: "Obtained", certificate: done.certificate } satisfies Ordered
    }
    const wait = done.wait === undefined ? pause : Math.max(done.wait * 1000, firstPauseMs)
    const now = yield* Clock.currentTimeMillis
    if (wait > worthWaitingMs || now + wait > until) {
      return { _tag: "UnderWay", again: wait / 1000 } satisfies Ordered
    }
    yield* Effect.sleep(wait)
    pause = Math.min(longestPauseMs, pause * 1.5)
  }
})

const keyTypes: ReadonlySet<string> = new Set(["badCSR", "badPublicKey"])

const download = Effect.fnUntraced(function* (
  client: AcmeClient,
  { name }: CertificateJob,
  order: Order,
  { privateKeyPem }: StoredOrder
) {
  if (order.certificate === undefined) {
    return yield* new OrderOver({
      message: "The certificate authority names no certificate",
      type: "answer"
    })
  }
  const chain = chainOf(yield* client.certificate(order.certificate), name, privateKeyPem)
  if ("fault" in chain) {
    return yield* new OrderOver({
      message: `What the certificate authority issued ${chain.fault}`,
      type: "answer"
    })
  }
  const certificate: Obtained = {
    issuer: "acme",
    directory: client.directoryUrl,
    chain: chain.pem,
    privateKeyPem,
    fingerprint: chain.fingerprint,
    notBefore: chain.notBefore,
    notAfter: chain.notAfter,
    renewAt: renewAtOf(chain)
  }
  return certificate
})

/** It is not there, or not ours. */
const orGone = (error: AcmeError) =>
  error.status === 403 || error.status === 404 || error.status === 410 ? new OrderOver(error) : error

export const isOver = (error: AcmeError): boolean => error instanceof OrderOver

/** Stored when this is done. */
const placeOrder = Effect.fnUntraced(function* (
  { client, jobs, resolver, orgOrders }: AcmeIssuer,
  job: CertificateJob
) {
  const { meta } = yield* client.directory
  const wait = yield* jobs.orderWait(job, orgOrders)
  if (wait !== undefined) return yield* new Limited(wait)
  const refusal = yield* caaRefusal(resolver, job.name, meta?.caaIdentities ?? [])
  if (refusal !== undefined) return yield* new AcmeError({ message: refusal, type: "caa" })
  const privateKeyPem = yield* newPrivateKey
  const replaced =
    job.directory === client.directoryUrl && job.chain !== undefined
      ? yield* certificateIdOf(job.chain)
      : undefined
  const { renewalInfo } = yield* client.directory
  const replaces = renewalInfo === undefined ? undefined : replaced
  const { url } = yield* client.newOrder(job.name, replaces).pipe(
    // Something of this certificate is not as the authority wants it (RFC 9773, section 5): a new order all the same.
    Effect.catchIf(
      ({ type, status }) =>
        replaces !== undefined && (type === "alreadyReplaced" || status === 409 || type === "malformed"),
      () => client.newOrder(job.name, undefined)
    )
  )
  const order: StoredOrder = { directory: client.directoryUrl, url, privateKeyPem, ageSeconds: 0 }
  yield* orLost(jobs.keepOrder(job, order, orgOrders))
  return order
})

/** A lease that is lost ends the run: somebody else is at it. */
class LeaseLost extends Data.TaggedError("LeaseLost") {}

/** Too much was ordered by now. */
class Limited extends Data.TaggedError("Limited")<OrderWait> {}

const orLost = <E>(stored: Effect.Effect<boolean, E>) =>
  Effect.flatMap(stored, (kept) => (kept ? Effect.void : Effect.fail(new LeaseLost())))

interface Proof {
  readonly challenge: Challenge
  readonly show: Effect.Effect<void, AcmeError | LeaseLost | StoreUnavailable>
  readonly hide: Effect.Effect<void, AcmeError | StoreUnavailable>
}

/** How this authorization is proved. */
const proofOf = Effect.fnUntraced(function* (
  { client, jobs, dns }: AcmeIssuer,
  job: CertificateJob,
  { challenges }: Authorization
): Effect.fn.Return<Proof, AcmeError> {
  const type = job.name.startsWith("*.") ? "dns-01" : "http-01"
  const challenge = challenges.find((one) => one.type === type)
  if (challenge?.token === undefined || !/^[\w-]+$/.test(challenge.token)) {
    return yield* new OrderOver({
      message: `The certificate authority offers no proof of ${job.name} by ${type}`,
      type: "unsupportedChallenge"
    })
  }
  const { token } = challenge
  const keyAuthorization = client.keyAuthorization(token)
  if (type === "http-01") {
    return {
      challenge,
      show: orLost(jobs.putChallenge(job, { token, keyAuthorization })),
      hide: jobs.removeChallenge(job, token)
    }
  }
  const name = `_acme-challenge.${job.name.slice(2)}`
  if (dns === undefined || !dns.covers(name)) {
    return yield* new AcmeError({
      message: `Nobody is set to write the record ${name}: see SVC_ACME_DNS`,
      type: "settings"
    })
  }
  const record = { name, value: createHash("sha256").update(keyAuthorization).digest("base64url") }
  const failed = ({ message }: { readonly message: string }) =>
    new AcmeError({ message, type: "dnsProvider" })
  return {
    challenge,
    show: Effect.mapError(dns.add(record), failed),
    hide: Effect.mapError(dns.remove(record), failed)
  }
})

/** Once nobody looks any more: also those that an earlier run showed. One that stays does no harm. */
const hideProofs = Effect.fnUntraced(
  function* (issuer: AcmeIssuer, job: CertificateJob, order: Order) {
    for (const url of order.authorizations) {
      const { value } = yield* issuer.client.authorization(url)
      yield* (yield* proofOf(issuer, job, value)).hide
    }
  },
  Effect.catch((error) => Effect.logDebug("a proof for a certificate authority stays", error))
)

/** The order's own words, or those of the proof that failed. */
const whyInvalid = Effect.fnUntraced(function* (client: AcmeClient, order: Order) {
  for (const url of order.authorizations) {
    const { value } = yield* client.authorization(url)
    if (value.challenges.some(({ error }) => error !== undefined)) return errorOf(value.challenges)
  }
  if (order.error !== undefined) return { message: wordsOf(order.error), type: typeOf(order.error) }
  return errorOf([])
})

const errorOf = (
  challenges: ReadonlyArray<Challenge>
): { readonly message: string; readonly type: string } => {
  const problem = challenges.find(({ error }) => error !== undefined)?.error
  return problem === undefined
    ? { message: "The certificate authority gave the order up without a reason", type: "answer" }
    : { message: wordsOf(problem), type: typeOf(problem) }
}
