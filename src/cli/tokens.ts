/**
 * The tokens of sign-ins, each in a file of its own that its owner alone can read, apart from the organization and the
 * address (`credentials.ts`). A sign-in is named by an id of this machine.
 *
 * Refresh tokens are good once: whoever uses one twice ends the sign-in. So all processes of the user refresh under a
 * lock, and look again once they hold it: most likely somebody else has done it meanwhile.
 */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { AuthorizationServerFailed, TokenSet } from "./authorization-server.ts"
import { attempt, configFolder, readText, replaceFile } from "./config-folder.ts"
import { type CliFailure, exitCodes, failure } from "./failure.ts"
import { locked } from "./file-lock.ts"
import { visibleLine } from "./visible.ts"

export const SignInId = Schema.String.check(Schema.isUUID())

const Stored = Schema.Struct({
  apiUrl: Schema.String,
  clientId: Schema.Literals(["svc-cli", "svc-mcp"]),
  accessToken: Schema.NonEmptyString,
  refreshToken: Schema.NonEmptyString,
  /** When the access token ends by the clock of this machine, in milliseconds. */
  expiresAt: Schema.Finite,
  scopes: Schema.Array(Schema.String)
})
type Stored = typeof Stored.Type
const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Stored))

/** So long before its end a token is refreshed: a request takes its time, and clocks differ. */
const earlyMs = 60_000
/** A server that does not answer keeps nobody from signing out here. */
const longestGoodbye = "15 seconds"

const fileOf = (id: string) => Effect.map(configFolder, (folder) => path.join(folder, "tokens", `${id}.json`))

const read = Effect.fnUntraced(function* (file: string) {
  const text = yield* attempt(`Cannot read ${file}`, () => readText(file))
  if (text === undefined) return undefined
  return yield* Effect.mapError(decode(text), () =>
    failure(`${file} is damaged; sign in again: svc login`, exitCodes.authentication)
  )
})

const storedOf = Effect.fnUntraced(function* (of: Pick<Stored, "apiUrl" | "clientId">, tokens: TokenSet) {
  const stored: Stored = {
    apiUrl: of.apiUrl,
    clientId: of.clientId,
    accessToken: Redacted.value(tokens.accessToken),
    refreshToken: Redacted.value(tokens.refreshToken),
    expiresAt: (yield* Clock.currentTimeMillis) + tokens.expiresInMs,
    scopes: tokens.scopes
  }
  return stored
})

/** Keeps the tokens of a new sign-in, and answers its id. */
export const keep = Effect.fnUntraced(function* (of: Pick<Stored, "apiUrl" | "clientId">, tokens: TokenSet) {
  const id = randomUUID()
  const stored = yield* storedOf(of, tokens)
  const put = yield* replaceFile(yield* fileOf(id))
  yield* put(JSON.stringify(stored))
  return id
}, Effect.scoped)

const ended = (command: string, why = "it is over") =>
  failure(`Your sign-in ended: ${why}. Sign in again: ${command}`, exitCodes.authentication)
const commandOf = ({ clientId }: Pick<Stored, "clientId">) =>
  clientId === "svc-mcp" ? "svc mcp login" : "svc login"

/**
 * The access token of a sign-in, refreshed if it is about to end or is the one that was refused. Only what the server
 * says of the token ends a sign-in (`invalid_grant`): then its file is removed. A server that is away, or answers
 * something else, does not.
 */
export const accessToken = Effect.fnUntraced(function* (id: string, refused?: Redacted.Redacted) {
  const file = yield* fileOf(id)
  const usable = Effect.fnUntraced(function* (stored: Stored, earlier: number) {
    const isRefused = refused !== undefined && Redacted.value(refused) === stored.accessToken
    const left = stored.expiresAt - (yield* Clock.currentTimeMillis)
    return !isRefused && left > earlier ? Redacted.make(stored.accessToken) : undefined
  })
  const now = yield* read(file)
  if (now === undefined) return yield* ended("svc login")
  return (
    (yield* usable(now, earlyMs)) ??
    (yield* locked(
      file,
      Effect.gen(function* () {
        const stored = yield* read(file)
        if (stored === undefined) return yield* ended(commandOf(now))
        const fresh = yield* usable(stored, earlyMs)
        if (fresh !== undefined) return fresh
        return yield* Effect.catchTag(renew(file, stored), "AuthorizationServerFailed", (error) =>
          Effect.flatMap(usable(stored, 0), (still) =>
            still === undefined ? Effect.fail(unrefreshed(stored, error)) : Effect.succeed(still)
          )
        )
      })
    ))
  )
})

const unrefreshed = ({ apiUrl }: Stored, { message }: AuthorizationServerFailed): CliFailure =>
  failure(visibleLine(`${apiUrl} does not refresh the sign-in now: ${message}. It is kept; try again`))

/** Once the server has answered, what it answered is stored, also where somebody stops the program meanwhile. */
const renew = Effect.fnUntraced(function* (file: string, stored: Stored) {
  const { discover, patiently, refresh } = yield* Effect.promise(() => import("./authorization-server.ts"))
  const config = yield* discover(stored.apiUrl, stored.clientId)
  const put = yield* replaceFile(file, JSON.stringify(stored).length)
  const once = Effect.gen(function* () {
    const tokens = yield* refresh(config, Redacted.make(stored.refreshToken))
    yield* put(JSON.stringify(yield* storedOf(stored, tokens)))
    return tokens.accessToken
  })
  // A lost answer is asked for again with the same token. If the server had given new ones, that ends the sign-in: but
  // they are lost, and the next use of the old one would end it as well.
  return yield* patiently(Effect.uninterruptible(once)).pipe(
    Effect.catchTag("InvalidGrant", ({ message }) =>
      Effect.andThen(
        Effect.promise(() => fs.rm(file, { force: true })),
        Effect.fail(ended(commandOf(stored), message))
      )
    )
  )
}, Effect.scoped)

/**
 * Ends a sign-in: at the server, then here. Answers whether the server knows of it; here it ends in any case.
 */
export const end = Effect.fnUntraced(function* (id: string) {
  const file = yield* fileOf(id)
  return yield* locked(
    file,
    Effect.gen(function* () {
      const stored = yield* Effect.orElseSucceed(read(file), () => undefined)
      const { discover, revoke } = yield* Effect.promise(() => import("./authorization-server.ts"))
      const told =
        stored === undefined ||
        (yield* discover(stored.apiUrl, stored.clientId).pipe(
          Effect.flatMap((config) => revoke(config, Redacted.make(stored.refreshToken))),
          Effect.timeout(longestGoodbye),
          Effect.isSuccess
        ))
      for (const name of [file, `${file}.new`]) yield* Effect.promise(() => fs.rm(name, { force: true }))
      return told
    })
  )
})
