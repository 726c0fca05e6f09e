/**
 * Proving who one is. Success sets the session cookie and shows no token. The pages at `/sign-in` do the same with
 * forms.
 */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { lineFault } from "#schemas/display-text.ts"
import { Deleted, Id, Timestamp } from "#src/api/definition/fields.ts"
import { callerOperation, group, publicOperation, sessionOnly } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { PublicAccess } from "#src/api/definition/public-access.ts"

/** An address that mail could go to: more forms than those that can be invited, because the operator has one. */
export const Address = Schema.String.check(
  Schema.isMaxLength(254),
  Schema.isPattern(/^[^\s@"(),:;<>[\]\\\p{Cc}\p{Cf}]{1,64}@[\p{L}\p{N}](?:[\p{L}\p{N}.-]*[\p{L}\p{N}])?$/u, {
    expected: "an e-mail address"
  })
).annotate({ format: "email" })
export const Password = Schema.String.check(Schema.isMaxLength(1_000)).annotate({ format: "password" })
const LinkToken = Schema.String.check(Schema.isMaxLength(200)).annotate({
  description: "From the link in the mail"
})
export const PersonName = Schema.String.check(
  Schema.isMaxLength(100),
  Schema.makeFilter((name: string) => lineFault(name))
)

const SignedIn = Schema.Struct({
  userId: Id,
  email: Schema.String.annotate({ format: "email" }),
  name: Schema.String,
  isNew: Schema.Boolean.annotate({ description: "The account was made just now" }),
  expiresAt: Timestamp
}).annotate({ identifier: "SignedIn" })

const Mailed = Schema.Struct({ ok: Schema.Literal(true) }).pipe(HttpApiSchema.status(202))

export const SignIn = group("signIn", "Proving who one is. Success sets the session cookie.")
  .add(
    HttpApiEndpoint.post("password", "/v1/auth/sign-in", {
      payload: Schema.Struct({ email: Address, password: Password }),
      success: SignedIn,
      error: bodyProblems()
    }).annotateMerge(publicOperation("auth.signIn", "Sign in with a password", "write")),
    HttpApiEndpoint.post("requestLink", "/v1/auth/link", {
      payload: Schema.Struct({ email: Address, name: Schema.optionalKey(PersonName) }),
      success: Mailed,
      error: bodyProblems()
    }).annotateMerge(
      publicOperation("auth.requestLink", "Have a link mailed that signs in, or signs up who is new", "write")
    ),
    HttpApiEndpoint.post("useLink", "/v1/auth/link/use", {
      payload: Schema.Struct({ token: LinkToken }),
      success: SignedIn,
      error: bodyProblems()
    }).annotateMerge(publicOperation("auth.useLink", "Sign in with a mailed link", "write")),
    HttpApiEndpoint.post("requestReset", "/v1/auth/password-reset", {
      payload: Schema.Struct({ email: Address }),
      success: Mailed,
      error: bodyProblems()
    }).annotateMerge(
      publicOperation("auth.requestPasswordReset", "Have a link mailed that chooses a new password", "write")
    ),
    HttpApiEndpoint.post("resetPassword", "/v1/auth/password-reset/use", {
      payload: Schema.Struct({ token: LinkToken, password: Password }),
      success: SignedIn,
      error: bodyProblems()
    }).annotateMerge(
      publicOperation(
        "auth.resetPassword",
        "Choose a new password with a mailed link; signs in here and out everywhere else",
        "write"
      )
    ),
    HttpApiEndpoint.get("providers", "/v1/auth/providers", {
      success: Schema.Array(Schema.Struct({ id: Schema.String, name: Schema.String, url: Schema.String })),
      error: problems()
    }).annotateMerge(publicOperation("auth.providers", "List the identity providers one may sign in with"))
  )
  .middleware(PublicAccess)

const SessionView = Schema.Struct({
  id: Id,
  current: Schema.Boolean,
  method: Schema.NullOr(Schema.String).annotate({
    description: "`password`, `link` or `oidc:<provider>`; null for one that was made on the server"
  }),
  address: Schema.NullOr(Schema.String),
  userAgent: Schema.NullOr(Schema.String),
  createdAt: Timestamp,
  lastUsedAt: Timestamp,
  expiresAt: Timestamp
}).annotate({ identifier: "Session" })
/** `{}`: a struct without fields would take any. */
const Nothing = Schema.Record(Schema.String, Schema.Never)
const ofSession = { risk: "write", credentials: sessionOnly } as const

export const Sessions = group("sessions", "The caller's sessions and password.").add(
  HttpApiEndpoint.get("list", "/v1/auth/sessions", {
    success: Schema.Array(SessionView),
    error: problems()
  }).annotateMerge(
    callerOperation("sessions.list", "List your sessions, the last used first", { credentials: sessionOnly })
  ),
  HttpApiEndpoint.delete("end", "/v1/auth/sessions/:sessionId", {
    params: { sessionId: Id },
    success: Deleted,
    error: problems()
  }).annotateMerge(callerOperation("sessions.end", "End one of your sessions", ofSession)),
  HttpApiEndpoint.post("signOut", "/v1/auth/sign-out", {
    payload: Nothing,
    success: Deleted,
    error: bodyProblems()
  }).annotateMerge(callerOperation("auth.signOut", "End this session", ofSession)),
  HttpApiEndpoint.post("signOutEverywhere", "/v1/auth/sign-out-everywhere", {
    payload: Nothing,
    success: Schema.Struct({ ended: Schema.Int }),
    error: bodyProblems()
  }).annotateMerge(callerOperation("auth.signOutEverywhere", "End all of your sessions", ofSession)),
  HttpApiEndpoint.post("proveAgain", "/v1/auth/prove-again", {
    payload: Schema.Struct({ password: Password }),
    success: Deleted,
    error: bodyProblems()
  }).annotateMerge(
    callerOperation("auth.proveAgain", "Give the password again, for what asks for a recent proof", ofSession)
  ),
  HttpApiEndpoint.put("changePassword", "/v1/auth/password", {
    payload: Schema.Struct({ current: Schema.optionalKey(Password), password: Password }),
    success: Deleted,
    error: bodyProblems()
  }).annotateMerge(
    callerOperation("auth.changePassword", "Set the password; ends every other session", ofSession)
  )
)
