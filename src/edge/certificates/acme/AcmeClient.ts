/**
 * The ACME protocol (RFC 8555) as its client speaks it, with renewal information (RFC 9773): one call for each request.
 * What is asked when, and what is kept meanwhile, is up to `order.ts`.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import { externalCall } from "#src/engine/external-call.ts"
import { AcmeError, Problem, typeOf, wordsOf } from "./errors.ts"
import { type AccountKey, externalAccountBinding, signed } from "./jws.ts"
import type { AcmeAnswer, Transport } from "./transport.ts"

const Directory = Schema.Struct({
  newNonce: Schema.String,
  newAccount: Schema.String,
  newOrder: Schema.String,
  renewalInfo: Schema.optional(Schema.String),
  meta: Schema.optional(
    Schema.Struct({
      externalAccountRequired: Schema.optional(Schema.Boolean),
      caaIdentities: Schema.optional(Schema.Array(Schema.String))
    })
  )
})
export type Directory = typeof Directory.Type

const Order = Schema.Struct({
  status: Schema.Literals(["pending", "ready", "processing", "valid", "invalid"]),
  authorizations: Schema.Array(Schema.String),
  finalize: Schema.String,
  certificate: Schema.optional(Schema.String),
  error: Schema.optional(Problem)
})
export type Order = typeof Order.Type

const Challenge = Schema.Struct({
  type: Schema.String,
  url: Schema.String,
  status: Schema.String,
  token: Schema.optional(Schema.String),
  error: Schema.optional(Problem)
})
export type Challenge = typeof Challenge.Type

const Authorization = Schema.Struct({
  status: Schema.Literals(["pending", "valid", "invalid", "deactivated", "expired", "revoked"]),
  challenges: Schema.Array(Challenge)
})
export type Authorization = typeof Authorization.Type

const RenewalInfo = Schema.Struct({
  suggestedWindow: Schema.Struct({ start: Schema.String, end: Schema.String })
})

/** What a server answered, and when it wants to be asked again, in seconds. */
export interface Answered<A> {
  readonly value: A
  readonly retryAfter: number | undefined
}

export interface AcmeAccount {
  readonly directoryUrl: string
  readonly email: string | undefined
  readonly binding: { readonly kid: string; readonly hmacKey: Redacted.Redacted } | undefined
  readonly key: AccountKey
}

export interface AcmeClient {
  readonly directoryUrl: string
  readonly directory: Effect.Effect<Directory, AcmeError>
  /** What proves that a challenge is ours (section 8.1). */
  readonly keyAuthorization: (token: string) => string
  /** `replaces`: the renewal information's name of the certificate that this one follows. */
  readonly newOrder: (
    name: string,
    replaces: string | undefined
  ) => Effect.Effect<{ readonly url: string; readonly order: Order }, AcmeError>
  readonly order: (url: string) => Effect.Effect<Answered<Order>, AcmeError>
  readonly authorization: (url: string) => Effect.Effect<Answered<Authorization>, AcmeError>
  /** The challenge may be looked at now. */
  readonly accept: (challengeUrl: string) => Effect.Effect<void, AcmeError>
  /** `csr`: DER in base64url. */
  readonly finalize: (url: string, csr: string) => Effect.Effect<void, AcmeError>
  /** The chain in PEM, the leaf first. */
  readonly certificate: (url: string) => Effect.Effect<string, AcmeError>
  /** When the server wants a certificate to be renewed; undefined: it gives no such advice. */
  readonly renewalInfo: (
    certificateId: string
  ) => Effect.Effect<Answered<{ readonly start: Date; readonly end: Date }> | undefined, AcmeError>
}

/** A nonce may be refused for many reasons, each time with a new one (section 6.5). */
const nonceTries = 10
const nonceRest = "50 millis"
/** Nonces that are kept for later. */
const mostNonces = 20
const directoryMs = 3_600_000

export const makeAcmeClient = (transport: Transport, account: AcmeAccount): AcmeClient => {
  const { directoryUrl, key } = account
  const nonces: Array<string> = []
  const keepNonce = (answer: AcmeAnswer) => {
    const nonce = answer.header("replay-nonce")
    if (nonce !== undefined && nonces.length < mostNonces) nonces.push(nonce)
  }
  let known: { readonly directory: Directory; readonly until: number } | undefined
  let accountUrl: string | undefined
  /** Of several that need the account at once one registers it. */
  const registering = Semaphore.makeUnsafe(1)

  const refused = (answer: AcmeAnswer): AcmeError => {
    const decoded = decodeProblem(answer.text)
    const problem = decoded._tag === "Some" ? decoded.value : undefined
    return new AcmeError({
      message:
        problem === undefined
          ? `The certificate authority answered with status ${answer.status} and no reason`
          : wordsOf(problem),
      type: problem?.type === undefined && answer.status >= 500 ? "serverInternal" : typeOf(problem ?? {}),
      status: answer.status,
      ...(answer.retryAfter === undefined ? {} : { retryAfter: answer.retryAfter })
    })
  }
  const accepted = (answer: AcmeAnswer) =>
    answer.status >= 200 && answer.status < 300 ? Effect.succeed(answer) : Effect.fail(refused(answer))
  const read =
    <S extends Schema.Decoder<unknown>>(what: string, schema: S) =>
    (answer: AcmeAnswer): Effect.Effect<S["Type"], AcmeError> =>
      Effect.mapError(
        Schema.decodeUnknownEffect(Schema.fromJsonString(schema))(answer.text),
        () =>
          new AcmeError({
            message: `The certificate authority's answer is not ${what} that can be read`,
            type: "answer",
            status: answer.status
          })
      )

  const directory = Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    if (known !== undefined && now < known.until) return known.directory
    const found = yield* transport({ method: "GET", url: directoryUrl }).pipe(
      externalCall("acme.directory", "read"),
      Effect.flatMap(accepted),
      Effect.flatMap(read("a directory", Directory))
    )
    known = { directory: found, until: now + directoryMs }
    return found
  })

  const nonce = Effect.gen(function* () {
    const kept = nonces.pop()
    if (kept !== undefined) return kept
    const { newNonce } = yield* directory
    const answer = yield* Effect.flatMap(transport({ method: "HEAD", url: newNonce }), accepted)
    const fresh = answer.header("replay-nonce")
    if (fresh !== undefined) return fresh
    return yield* new AcmeError({ message: "The certificate authority gave no nonce", type: "answer" })
  })

  const post = Effect.fnUntraced(function* (
    url: string,
    identity: { readonly kid: string } | { readonly jwk: AccountKey["jwk"] },
    payload: unknown
  ) {
    for (let tries = 1; ; tries++) {
      const body = signed(key, { ...identity, nonce: yield* nonce, url }, payload)
      const answer = yield* transport({ method: "POST", url, body })
      keepNonce(answer)
      const result = yield* Effect.result(accepted(answer))
      if (result._tag === "Success") return result.success
      if (result.failure.type !== "badNonce" || tries >= nonceTries) return yield* result.failure
      // It came with a new one; those that were kept may be as old as the one that was refused.
      nonces.splice(0, nonces.length - 1)
      yield* Effect.sleep(nonceRest)
    }
  })

  const register = Effect.gen(function* () {
    const { newAccount, meta } = yield* directory
    const locationOf = (answer: AcmeAnswer) => {
      const url = answer.header("location")
      return url === undefined
        ? Effect.fail(
            new AcmeError({ message: "The certificate authority did not name the account", type: "answer" })
          )
        : Effect.succeed(url)
    }
    const jwk = { jwk: key.jwk }
    // Some authorities let a binding be used once only, so one is sent for an account that is not there yet.
    const existing = yield* post(newAccount, jwk, { onlyReturnExisting: true }).pipe(
      externalCall("acme.account", "read"),
      Effect.flatMap(locationOf),
      Effect.catchIf(
        ({ type }) => type === "accountDoesNotExist",
        () => Effect.succeed(undefined)
      )
    )
    if (existing !== undefined) return existing
    const { email, binding } = account
    if (binding === undefined && meta?.externalAccountRequired === true) {
      return yield* new AcmeError({
        message:
          "The certificate authority makes accounts only for its customers: set SVC_ACME_EAB to what it gave you",
        type: "externalAccountRequired"
      })
    }
    return yield* post(newAccount, jwk, {
      termsOfServiceAgreed: true,
      ...(email === undefined ? {} : { contact: [`mailto:${email}`] }),
      ...(binding === undefined
        ? {}
        : {
            externalAccountBinding: externalAccountBinding(key, newAccount, {
              kid: binding.kid,
              hmacKey: Redacted.value(binding.hmacKey)
            })
          })
    }).pipe(externalCall("acme.register", "write"), Effect.flatMap(locationOf))
  })
  const accountId = Effect.suspend(() =>
    accountUrl === undefined
      ? Effect.tap(register, (url) =>
          Effect.sync(() => {
            accountUrl = url
          })
        )
      : Effect.succeed(accountUrl)
  ).pipe(registering.withPermits(1))

  /** As the account; one that the authority has forgotten is made anew. */
  const ask = (url: string, payload?: unknown) =>
    Effect.flatMap(accountId, (kid) =>
      Effect.catchIf(
        post(url, { kid }, payload),
        ({ type }) => type === "accountDoesNotExist",
        () => {
          if (accountUrl === kid) accountUrl = undefined
          return Effect.flatMap(accountId, (again) => post(url, { kid: again }, payload))
        }
      )
    )
  const look = <S extends Schema.Decoder<unknown>>(name: string, url: string, what: string, schema: S) =>
    ask(url).pipe(
      externalCall(name, "read"),
      Effect.flatMap((answer) =>
        Effect.map(
          read(what, schema)(answer),
          (value): Answered<S["Type"]> => ({ value, retryAfter: answer.retryAfter })
        )
      )
    )

  return {
    directoryUrl,
    directory,
    keyAuthorization: (token) => `${token}.${key.thumbprint}`,
    newOrder: Effect.fnUntraced(function* (name, replaces) {
      const { newOrder } = yield* directory
      const answer = yield* ask(newOrder, {
        identifiers: [{ type: "dns", value: name }],
        ...(replaces === undefined ? {} : { replaces })
      }).pipe(externalCall("acme.newOrder", "write"))
      const url = answer.header("location")
      if (url === undefined) {
        return yield* new AcmeError({
          message: "The certificate authority did not name the order",
          type: "answer"
        })
      }
      return { url, order: yield* read("an order", Order)(answer) }
    }),
    order: (url) => look("acme.order", url, "an order", Order),
    authorization: (url) => look("acme.authorization", url, "an authorization", Authorization),
    accept: (url) => ask(url, {}).pipe(externalCall("acme.accept", "write"), Effect.asVoid),
    finalize: (url, csr) => ask(url, { csr }).pipe(externalCall("acme.finalize", "write"), Effect.asVoid),
    certificate: (url) =>
      ask(url).pipe(
        externalCall("acme.certificate", "read"),
        Effect.map(({ text }) => text)
      ),
    renewalInfo: Effect.fnUntraced(function* (certificateId) {
      const { renewalInfo } = yield* directory
      if (renewalInfo === undefined) return undefined
      const answer = yield* transport({
        method: "GET",
        url: `${renewalInfo.replace(/\/$/, "")}/${certificateId}`
      }).pipe(externalCall("acme.renewalInfo", "read"), Effect.flatMap(accepted))
      const { suggestedWindow } = yield* read("renewal information", RenewalInfo)(answer)
      const [start, end] = [new Date(suggestedWindow.start), new Date(suggestedWindow.end)]
      if (!(start.getTime() < end.getTime())) {
        return yield* new AcmeError({
          message: "The certificate authority suggests no time to renew that makes sense",
          type: "answer"
        })
      }
      return { value: { start, end }, retryAfter: answer.retryAfter }
    })
  }
}

const decodeProblem = Schema.decodeUnknownOption(Schema.fromJsonString(Problem))
