/** The bearer token of a request (RFC 6750): one as it is stored, or a sign-in's, which changes every hour. */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { accessToken } from "./tokens.ts"

export type Credential =
  | { readonly _tag: "Token"; readonly token: Redacted.Redacted }
  /** The id of the sign-in. */
  | { readonly _tag: "SignIn"; readonly id: string }

/**
 * `send` with the credential. A token of a sign-in that is refused is replaced once and the request sent again: a clock
 * may be wrong, or the machine have slept. A sign-in that has ended rejects with the `CliFailure` that says so.
 */
export const authorized = (
  send: typeof fetch,
  credential: Credential | undefined
): Effect.Effect<typeof fetch> =>
  Effect.gen(function* () {
    if (credential === undefined) return send
    const run = Effect.runPromiseWith(yield* Effect.context<never>())
    const sendWith = (token: Redacted.Redacted, input: Parameters<typeof fetch>[0], init?: RequestInit) => {
      const headers = new Headers(init?.headers)
      headers.set("authorization", `Bearer ${Redacted.value(token)}`)
      return send(input, { ...init, headers })
    }
    if (credential._tag === "Token") return (input, init) => sendWith(credential.token, input, init)
    return async (input, init) => {
      const stop = init?.signal ? { signal: init.signal } : {}
      const token = await run(accessToken(credential.id), stop)
      const response = await sendWith(token, input, init)
      // A stream is read once.
      if (response.status !== 401 || init?.body instanceof ReadableStream) return response
      await response.body?.cancel()
      return sendWith(await run(accessToken(credential.id, token), stop), input, init)
    }
  })
