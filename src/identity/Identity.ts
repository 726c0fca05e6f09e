/**
 * The ways to prove who one is, each from the first step to a session.
 *
 * What is said to a stranger is the same whether an address has an account or not, and takes the same work: a link
 * that is asked for is mailed in both cases (it signs in or signs up), and a password is hashed in both.
 */
import { randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { digestOf } from "#src/access/Access.ts"
import { AuditWriter } from "#src/access/AuditWriter.ts"
import { AppConfig } from "#src/config.ts"
import { Mail } from "#src/mail/Mail.ts"
import * as messages from "#src/mail/messages.ts"
import { normalizeEmail } from "#src/organizations/Invitations.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { attemptLimit } from "./attempt-limit.ts"
import {
  BadInput,
  LinkDead,
  ProveAgain,
  ProviderFailed,
  type TooManyTries,
  WrongCredentials
} from "./errors.ts"
import { type MailedToken, People, type Person, type Purpose } from "./People.ts"
import { Passwords, passwordFault } from "./passwords.ts"
import { type NewSession, type Session, Sessions } from "./Sessions.ts"
import type { Entry } from "./visitor.ts"

export interface SignedIn extends Person {
  readonly session: NewSession
  /** The account was made just now. */
  readonly isNew: boolean
  /** Where the reader of the mail wanted to go. */
  readonly next: string | undefined
}

/** What an identity provider says of somebody. */
export interface Claims {
  readonly provider: string
  readonly issuer: string
  readonly subject: string
  readonly email: string | undefined
  readonly emailVerified: boolean
  readonly name: string | undefined
}

const linkMinutes = 15
const resetMinutes = 60
/** Changing what proves who one is takes a proof that is no older. */
export const recentSeconds = 15 * 60
const tokenForm = /^[0-9a-f]{64}$/

const deadLink = new LinkDead({
  message: "This link has been used or is too old. Ask for another one."
})

export class Identity extends Context.Service<
  Identity,
  {
    readonly signIn: (
      email: string,
      password: Redacted.Redacted,
      entry: Entry
    ) => Effect.Effect<SignedIn, WrongCredentials | TooManyTries | StoreUnavailable>
    /** Mails a link that signs in whoever has an account, and signs up whoever has none. */
    readonly requestLink: (
      asked: { readonly email: string; readonly name?: string; readonly next?: string },
      entry: Entry
    ) => Effect.Effect<void, TooManyTries | StoreUnavailable>
    readonly requestReset: (
      asked: { readonly email: string; readonly next?: string },
      entry: Entry
    ) => Effect.Effect<void, TooManyTries | StoreUnavailable>
    /** Looks at a mailed link without using it: programs that check mail follow links, people press buttons. */
    readonly lookAtLink: (
      purpose: Purpose,
      token: string
    ) => Effect.Effect<MailedToken, LinkDead | StoreUnavailable>
    readonly useLink: (
      token: string,
      entry: Entry
    ) => Effect.Effect<SignedIn, LinkDead | TooManyTries | StoreUnavailable>
    /** Ends every other session. */
    readonly resetPassword: (
      token: string,
      password: Redacted.Redacted,
      entry: Entry
    ) => Effect.Effect<SignedIn, LinkDead | BadInput | TooManyTries | StoreUnavailable>
    readonly signInFrom: (
      claims: Claims,
      entry: Entry
    ) => Effect.Effect<SignedIn, ProviderFailed | StoreUnavailable>
    /** Ends every other session. Who has a password gives it; who has none must have signed in just now. */
    readonly changePassword: (
      session: Session,
      current: Redacted.Redacted | undefined,
      password: Redacted.Redacted,
      entry: Entry
    ) => Effect.Effect<void, BadInput | WrongCredentials | ProveAgain | TooManyTries | StoreUnavailable>
    /** The holder of a session proves again who they are. */
    readonly proveAgain: (
      session: Session,
      password: Redacted.Redacted,
      entry: Entry
    ) => Effect.Effect<void, WrongCredentials | TooManyTries | StoreUnavailable>
  }
>()("svc/identity/Identity") {
  static readonly layer = Layer.effect(
    Identity,
    Effect.gen(function* () {
      const people = yield* People
      const sessions = yield* Sessions
      const passwords = yield* Passwords
      const mail = yield* Mail
      const audit = yield* AuditWriter
      const { publicUrl } = yield* AppConfig

      const { fromAddress, forPerson } = yield* attemptLimit

      const refused = (operation: string, principal: string, { visitor }: Entry) =>
        audit.denied({
          principal,
          credential: "none",
          operation,
          requestId: visitor.requestId,
          address: visitor.address,
          outcome: 401,
          orgId: null,
          resource: null
        })

      const begin = Effect.fnUntraced(function* (
        person: Person,
        method: string,
        entry: Entry,
        more: { readonly isNew?: boolean; readonly next?: string | undefined } = {}
      ) {
        const session = yield* sessions.create(person.userId, method, entry.visitor, entry.before)
        const { userId, email, name } = person
        return { userId, email, name, session, isNew: more.isNew ?? false, next: more.next }
      })

      const verify = Effect.fnUntraced(function* (
        email: string,
        hash: string | null,
        principal: string,
        password: Redacted.Redacted,
        entry: Entry
      ) {
        yield* forPerson(email)
        if (yield* passwords.verify(password, hash)) return
        refused("auth.signIn", principal, entry)
        return yield* new WrongCredentials({
          message: "The e-mail address or the password is wrong"
        })
      })

      const acceptable = (password: Redacted.Redacted, email: string) => {
        const message = passwordFault(Redacted.value(password), email)
        return message === undefined ? Effect.void : Effect.fail(new BadInput({ field: "password", message }))
      }

      const changedNotice = (person: { readonly email: string }) =>
        mail.prepare({
          ...messages.passwordChanged(`${publicUrl}/reset-password`),
          to: person.email,
          orgId: null,
          usefulSeconds: 7 * 86_400
        })

      const lookAtLink = Effect.fn("Identity.lookAtLink")(function* (purpose: Purpose, token: string) {
        if (!tokenForm.test(token)) return yield* deadLink
        const found = yield* people.findToken(purpose, digestOf(token))
        return Option.isSome(found) ? found.value : yield* deadLink
      })

      const by = (method: string, { visitor }: Entry) => ({ method, visitor })
      const newToken = () => randomBytes(32).toString("hex")

      return Identity.of({
        signIn: Effect.fn("Identity.signIn")(function* (typed, password, entry) {
          yield* fromAddress(entry)
          const email = normalizeEmail(typed)
          const found = Option.getOrUndefined(yield* people.byEmail(email))
          const principal = found === undefined ? "anonymous" : `user:${found.userId}`
          yield* verify(email, found?.hash ?? null, principal, password, entry)
          // Nothing is verified without an account.
          return found === undefined
            ? yield* new WrongCredentials({ message: "The e-mail address or the password is wrong" })
            : yield* begin(found, "password", entry)
        }),
        requestLink: Effect.fn("Identity.requestLink")(function* (asked, entry) {
          yield* fromAddress(entry)
          const email = normalizeEmail(asked.email)
          const token = newToken()
          const details = {
            ...(asked.name === undefined ? {} : { name: asked.name }),
            ...(asked.next === undefined ? {} : { next: asked.next })
          }
          const letter = mail.prepare({
            ...messages.signInLink(`${publicUrl}/sign-in/link?token=${token}`, linkMinutes),
            to: email,
            orgId: null,
            usefulSeconds: linkMinutes * 60
          })
          const made = { digest: digestOf(token), seconds: linkMinutes * 60 }
          yield* people.mailToken("sign_in", email, details, made, letter, entry.visitor)
        }),
        requestReset: Effect.fn("Identity.requestReset")(function* (asked, entry) {
          yield* fromAddress(entry)
          const email = normalizeEmail(asked.email)
          const token = newToken()
          const letter = mail.prepare({
            ...messages.passwordReset(`${publicUrl}/reset-password/new?token=${token}`, resetMinutes),
            to: email,
            orgId: null,
            usefulSeconds: resetMinutes * 60
          })
          const made = { digest: digestOf(token), seconds: resetMinutes * 60 }
          const details = asked.next === undefined ? {} : { next: asked.next }
          yield* people.mailToken("password_reset", email, details, made, letter, entry.visitor)
        }),
        lookAtLink,
        useLink: Effect.fn("Identity.useLink")(function* (token, entry) {
          yield* fromAddress(entry)
          if (!tokenForm.test(token)) return yield* deadLink
          const used = yield* people.useToken("sign_in", digestOf(token))
          if (Option.isNone(used)) return yield* deadLink
          const { email, details } = used.value
          const found = yield* people.ensure(email, details.name ?? "", by("link", entry))
          if (Option.isNone(found)) return yield* deadLink
          const person = found.value
          return yield* begin(person, "link", entry, { isNew: person.isNew, next: details.next })
        }),
        resetPassword: Effect.fn("Identity.resetPassword")(function* (token, password, entry) {
          yield* fromAddress(entry)
          const { email, details } = yield* lookAtLink("password_reset", token)
          // A password that will not do leaves the link as it is.
          yield* acceptable(password, email)
          const hash = yield* passwords.hash(password)
          const person = Option.getOrUndefined(yield* people.byEmail(email))
          if (person === undefined) return yield* deadLink
          const how = { keep: null, token: digestOf(token) }
          const done = yield* people.setPassword(
            person.userId,
            hash,
            how,
            changedNotice(person),
            by("link", entry)
          )
          if (!done) return yield* deadLink
          return yield* begin(person, "password", entry, { next: details.next })
        }),
        signInFrom: Effect.fn("Identity.signInFrom")(function* (claims, entry) {
          const method = `oidc:${claims.provider}`
          const known = yield* people.byExternal(claims.issuer, claims.subject)
          if (Option.isSome(known)) return yield* begin(known.value, method, entry)
          if (claims.email === undefined || !claims.emailVerified) {
            refused("auth.oidc", "anonymous", entry)
            return yield* new ProviderFailed({
              message:
                "The provider does not say that your e-mail address is yours. Sign in with a link by mail instead."
            })
          }
          // The provider vouches for the address, as a mailed link would: it is the same person.
          const found = yield* people.ensure(
            normalizeEmail(claims.email),
            claims.name ?? "",
            by(method, entry)
          )
          if (Option.isNone(found)) {
            refused("auth.oidc", "anonymous", entry)
            return yield* new ProviderFailed({ message: "You need an invitation to make an account here." })
          }
          const person = found.value
          yield* people.link(person.userId, claims.issuer, claims.subject, by(method, entry))
          return yield* begin(person, method, entry, { isNew: person.isNew })
        }),
        changePassword: Effect.fn("Identity.changePassword")(function* (session, current, password, entry) {
          yield* fromAddress(entry)
          if (session.hasPassword) {
            const person = Option.getOrUndefined(yield* people.byId(session.userId))
            const given = current ?? Redacted.make("")
            yield* verify(session.email, person?.hash ?? null, `user:${session.userId}`, given, entry)
          } else if (session.provedSecondsAgo > recentSeconds) {
            return yield* new ProveAgain({ message: "Sign in again first: you did so too long ago for this" })
          }
          yield* acceptable(password, session.email)
          const hash = yield* passwords.hash(password)
          const how = { keep: session.id, token: null }
          yield* people.setPassword(session.userId, hash, how, changedNotice(session), by("session", entry))
        }),
        proveAgain: Effect.fn("Identity.proveAgain")(function* (session, password, entry) {
          yield* fromAddress(entry)
          const person = Option.getOrUndefined(yield* people.byId(session.userId))
          yield* verify(session.email, person?.hash ?? null, `user:${session.userId}`, password, entry)
          yield* sessions.proved(session, entry.visitor)
        })
      })
    })
  )
}
