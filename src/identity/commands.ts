/** `svc login`, `svc logout`, `svc whoami`, `svc api`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { Client, call } from "#src/cli/client.ts"
import { changeEntries, credentialsFile, readEntries, replaceEntry } from "#src/cli/credentials.ts"
import { codeOf, exitCodes, failure } from "#src/cli/failure.ts"
import { asJson, connection, loginOf, online, readSecret, readStdin } from "#src/cli/flags.ts"
import { readTextFile } from "#src/cli/invocation.ts"
import { isLoopback } from "#src/cli/login.ts"
import { exact, json, out, say, table } from "#src/cli/output.ts"
import { resending } from "#src/cli/resend.ts"
import { visibleLine } from "#src/cli/visible.ts"

export const login = Command.make(
  "login",
  {
    ...connection,
    apiKey: Flag.Boolean("api-key").pipe(
      Flag.withDescription("Sign in with an API key, read from standard input"),
      Flag.withDefault(false)
    )
  },
  (flags) =>
    Effect.gen(function* () {
      if (!flags.apiKey)
        return yield* failure(
          "Signing in takes an API key: svc login --api-key < file-with-the-key",
          exitCodes.usage
        )
      const key = (yield* readSecret("API key")).trim()
      if (!/^svc_[0-9a-f]{40}$/.test(key))
        return yield* failure("That is not an API key: svc_ and 40 hex digits", exitCodes.usage)
      const login = yield* loginOf(flags)
      if (login.apiUrl.startsWith("http:") && !isLoopback(login.apiUrl))
        yield* say(`Warning: ${login.apiUrl} is not encrypted; who listens on the way reads the key`)
      const me = yield* Effect.provide(
        Effect.flatMap(Client, ({ asMember }) => call(asMember.me.get())),
        Client.layer({ ...login, apiKey: Redacted.make(key), session: undefined })
      )
      const organization = me.organizations[0]?.slug ?? login.organization
      const { apiUrl } = login
      // A session for the same organization goes on: keys never hold the owner's role.
      const before = (yield* readEntries).find(
        (entry) => entry.apiUrl === apiUrl && entry.organization === organization
      )
      const session = before?.session === undefined ? {} : { session: before.session }
      yield* replaceEntry({ apiUrl, organization, apiKey: key, ...session })
      yield* say(`Signed in to "${organization}" at ${apiUrl}; stored in ${yield* credentialsFile}`)
    })
).pipe(Command.withDescription("Store a credential for this machine"))

export const logout = Command.make("logout", connection, (flags) =>
  Effect.gen(function* () {
    const { apiUrl } = yield* loginOf(flags)
    const stored = (yield* readEntries).filter((entry) => entry.apiUrl === apiUrl)
    if (stored.length === 0) return yield* say(`There is no credential for ${apiUrl}`)
    yield* changeEntries((entries) => entries.filter((entry) => entry.apiUrl !== apiUrl))
    yield* say(`The credential for ${apiUrl} is removed from ${yield* credentialsFile}`)
  })
).pipe(Command.withDescription("Remove the stored credential of a control plane from this machine"))

export const whoami = Command.make("whoami", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, login } = yield* Client
      const me = yield* call(asMember.me.get())
      if (flags.json) return yield* json(me)
      const person = me.user === null ? undefined : `${me.user.name} <${me.user.email}>`
      const who =
        me.credential === "session"
          ? `${person}, signed in`
          : `The API key "${me.keyName}"${person === undefined ? "" : `, made by ${person},`}`
      yield* out(visibleLine(`${who} at ${login.apiUrl}`))
      yield* out(
        table(
          ["ORGANIZATION", "ROLE", "NAME"],
          me.organizations.map(({ slug, role, name }) => [slug, role, name])
        )
      )
    })
  )
).pipe(Command.withDescription("Show whose credential is used, and what it may do"))

const readBody = (data: string) => {
  if (data === "-") return readStdin
  if (!data.startsWith("@")) return Effect.succeed(data)
  return Effect.mapError(readTextFile(data.slice(1)), (cause) =>
    failure(`Cannot read ${data.slice(1)}: ${cause}`, exitCodes.usage)
  )
}

export const api = Command.make(
  "api",
  {
    ...connection,
    method: Argument.Literals("method", ["GET", "POST", "PUT", "PATCH", "DELETE"]),
    path: Argument.String("path").pipe(
      Argument.withDescription("Path such as /v1/me; {org} stands for the organization")
    ),
    data: Flag.String("data").pipe(
      Flag.withDescription("Body in JSON, @file, or - for standard input"),
      Flag.optional
    ),
    owner: Flag.Boolean("owner").pipe(
      Flag.withDescription("Use the owner's session instead of the key"),
      Flag.withDefault(false)
    )
  },
  (flags) =>
    Effect.gen(function* () {
      const login = yield* loginOf(flags)
      const token = flags.owner ? (login.session ?? login.apiKey) : (login.apiKey ?? login.session)
      const data = Option.getOrUndefined(flags.data)
      const body = data === undefined ? undefined : yield* readBody(data)
      if (!flags.path.startsWith("/")) return yield* failure("A path begins with /", exitCodes.usage)
      const path = flags.path.replaceAll("{org}", encodeURIComponent(login.organization))
      const answer = yield* Effect.tryPromise({
        try: async (signal) => {
          const response = await resending(fetch)(`${login.apiUrl}${path}`, {
            method: flags.method,
            signal: AbortSignal.any([signal, AbortSignal.timeout(120_000)]),
            headers: {
              ...(token === undefined ? {} : { authorization: `Bearer ${Redacted.value(token)}` }),
              ...(body === undefined ? {} : { "content-type": "application/json" })
            },
            ...(body === undefined ? {} : { body })
          })
          return { status: response.status, text: await response.text() }
        },
        catch: (cause) =>
          failure(
            `${login.apiUrl} cannot be reached: ${cause instanceof Error ? cause.message : String(cause)}`
          )
      })
      if (answer.text !== "") yield* exact(answer.text.replace(/\n$/, ""))
      if (answer.status === 401 && token === undefined) return yield* failure(login.missing, codeOf(401))
      const code = codeOf(answer.status)
      if (code !== 0) return yield* failure("", code)
    })
).pipe(Command.withDescription("Call any operation and print its answer"))
