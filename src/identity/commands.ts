/** `svc login`, `svc logout`, `svc whoami`. */
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { asking, inBrowser, warnOfListeners } from "#src/cli/browser-login.ts"
import { Client, call } from "#src/cli/client.ts"
import { amendEntry, changeEntries, credentialsFile, readEntries } from "#src/cli/credentials.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { asJson, connection, loginOf, online, readSecret } from "#src/cli/flags.ts"
import type { Login } from "#src/cli/login.ts"
import { facts, json, out, say, table } from "#src/cli/output.ts"
import { end } from "#src/cli/tokens.ts"
import { visibleLine } from "#src/cli/visible.ts"
import type { CallerView } from "#src/system/api.ts"

export const login = Command.make(
  "login",
  {
    ...connection,
    ...asking,
    apiKey: Flag.Boolean("api-key").pipe(
      Flag.withDescription("Sign in with an API key instead, read from standard input"),
      Flag.withDefault(false)
    )
  },
  (flags) => (flags.apiKey ? Effect.flatMap(loginOf(flags), withKey) : inBrowser(flags, "svc-cli"))
).pipe(Command.withDescription("Sign in at a control plane, in a browser or with an API key"))

const withKey = Effect.fnUntraced(function* (login: Login) {
  yield* warnOfListeners(login)
  const { apiUrl } = login
  const apiKey = (yield* readSecret("API key")).trim()
  if (!/^svc_[0-9a-f]{40}$/.test(apiKey))
    return yield* failure("That is not an API key: svc_ and 40 hex digits", exitCodes.usage)
  const me = yield* Effect.provide(
    Effect.flatMap(Client, ({ asMember }) => call(asMember.me.get())),
    Client.layer({ ...login, apiKey: Redacted.make(apiKey), session: undefined, signIn: undefined })
  )
  const organization = me.organizations[0]?.slug ?? login.organization
  // A session for the same organization goes on: keys never hold the owner's role.
  yield* amendEntry(apiUrl, organization, ({ signIn: _, ...before }) => ({ ...before, apiKey }))
  yield* say(`Signed in to "${organization}" at ${apiUrl}; stored in ${yield* credentialsFile}`)
})

export const logout = Command.make("logout", connection, (flags) =>
  Effect.gen(function* () {
    const { apiUrl } = yield* loginOf(flags)
    const stored = (yield* readEntries).filter((entry) => entry.apiUrl === apiUrl)
    if (stored.length === 0) return yield* say(`There is no credential for ${apiUrl}`)
    const signIns = stored.flatMap(({ mcpSignIn, signIn }) => [signIn, mcpSignIn])
    const told = yield* Effect.forEach(
      signIns.filter((id) => id !== undefined),
      end
    )
    yield* changeEntries((entries) => entries.filter((entry) => entry.apiUrl !== apiUrl))
    yield* say(`The credential for ${apiUrl} is removed from ${yield* credentialsFile}`)
    if (told.includes(false))
      return yield* failure(
        `${apiUrl} could not be told that the sign-in is over; revoke the grant there, or it ends 30 days after its last use`
      )
  })
).pipe(
  Command.withDescription("End the sign-in at a control plane and remove its credentials from this machine")
)

export const whoami = Command.make("whoami", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, login } = yield* Client
      const me = yield* call(asMember.me.get())
      if (flags.json) return yield* json(me)
      yield* out(visibleLine(`${whoseCredential(me)} at ${login.apiUrl}`))
      yield* out(
        table(
          ["ORGANIZATION", "ROLE", "NAME"],
          me.organizations.map(({ slug, role, name }) => [slug, role, name])
        )
      )
      if (me.grant === null) return
      const { expiresAt, scopes } = me.grant
      yield* out(
        facts([
          ["Grant", me.credentialId],
          ["Ends", `${expiresAt}, unless it is used before`],
          ...inGroups(scopes).map(([group, names]) => [group, names.join(" ")] as const)
        ])
      )
    })
  )
).pipe(Command.withDescription("Show whose credential is used, and what it may do"))

const whoseCredential = ({ credential, grant, keyName, user }: typeof CallerView.Type): string => {
  const person = user === null ? undefined : `${user.name} <${user.email}>`
  if (grant !== null) return `${person ?? "Somebody whose account is gone"}, through ${grant.clientName}`
  if (credential === "session") return `${person}, signed in`
  return `The API key "${keyName}"${person === undefined ? "" : `, made by ${person},`}`
}

/** Ids of operations by their first part, such as `caches`. */
const inGroups = (scopes: ReadonlyArray<string>): ReadonlyArray<readonly [string, ReadonlyArray<string>]> => {
  const groups = new Map<string, Array<string>>()
  for (const scope of [...scopes].sort()) {
    const [group = "", ...rest] = scope.split(".")
    groups.set(group, [...(groups.get(group) ?? []), rest.join(".")])
  }
  return [...groups]
}
