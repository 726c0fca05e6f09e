/** Why the authorization server says no. */
import * as Schema from "effect/Schema"

/** An authorization request that cannot be taken (RFC 6749, section 4.1.2.1). */
export class AuthorizationRefused extends Schema.TaggedError<AuthorizationRefused>()("AuthorizationRefused", {
  /** The error code of the RFC. */
  error: Schema.String,
  /** A sentence for people. */
  message: Schema.String,
  /**
   * Where the browser is sent with it. Null where the client or its address is not known to be right: then it is told on a
   * page, and nothing redirects.
   */
  redirect: Schema.NullOr(Schema.String)
}) {}

/** There is no such client, or what it says of itself cannot be read. */
export class ClientUnknown extends Schema.TaggedError<ClientUnknown>()("ClientUnknown", {
  message: Schema.String
}) {}

/** There is no such request that waits for a decision: it was decided, is too old, or never was. */
export class RequestGone extends Schema.TaggedError<RequestGone>()("RequestGone", {
  message: Schema.String
}) {}

/** The person may not let the agent in as they decided. The request goes on waiting. */
export class NotPermitted extends Schema.TaggedError<NotPermitted>()("NotPermitted", {
  message: Schema.String
}) {}

export class TooManyRequests extends Schema.TaggedError<TooManyRequests>()("TooManyRequests", {
  message: Schema.String,
  /** Seconds. */
  retryAfter: Schema.Number
}) {}

/** No token is issued (RFC 6749, section 5.2). */
export class TokenRefused extends Schema.TaggedError<TokenRefused>()("TokenRefused", {
  /** The error code of the RFC. */
  error: Schema.Literals([
    "invalid_request",
    "invalid_grant",
    "invalid_scope",
    "invalid_target",
    "invalid_redirect_uri",
    "invalid_client_metadata",
    "unsupported_grant_type"
  ]),
  message: Schema.String
}) {}
