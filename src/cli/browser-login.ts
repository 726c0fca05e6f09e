/** What the commands that sign in by browser have in common: what they ask for, and where the sign-in is stored. */
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import type { ClientId } from "./authorization-server.ts"
import { amendEntry } from "./credentials.ts"
import { type Connection, loginOf } from "./flags.ts"
import { variable } from "./invocation.ts"
import { isLoopback, type Login } from "./login.ts"
import { say } from "./output.ts"
import { wantedScopes } from "./wanted-scopes.ts"

export const asking = {
  browser: Flag.Boolean("browser").pipe(
    Flag.withDescription("Open a browser (--no-browser: print the address, and take the one it ends at)"),
    Flag.withDefault(true)
  ),
  role: Flag.Literals("role", ["member", "admin"]).pipe(
    Flag.withDescription("Role to ask for"),
    Flag.withDefault("admin")
  ),
  readOnly: Flag.Boolean("read-only").pipe(
    Flag.withDescription("Ask for operations that only read"),
    Flag.withDefault(false)
  ),
  scopes: Flag.String("scope").pipe(
    Flag.withDescription("Operation to ask for, such as caches.get or caches.* (more than once; else all)"),
    Flag.atLeast(0)
  )
}

interface Asked extends Connection {
  readonly browser: boolean
  readonly role: "admin" | "member"
  readonly readOnly: boolean
  readonly scopes: ReadonlyArray<string>
}

const kinds = {
  "svc-cli": { again: "svc login", field: "signIn", next: "svc whoami shows what was granted" },
  "svc-mcp": { again: "svc mcp login", field: "mcpSignIn", next: "svc mcp serve uses it from now on" }
} as const

export const warnOfListeners = ({ apiUrl }: Login) =>
  apiUrl.startsWith("http:") && !isLoopback(apiUrl)
    ? say(`Warning: ${apiUrl} is not encrypted; who listens on the way reads the credential`)
    : Effect.void

/** Signs in for one of our clients. What is stored for the same organization besides stays. */
export const inBrowser = Effect.fnUntraced(function* (asked: Asked, clientId: ClientId) {
  const login = yield* loginOf(asked)
  const { apiUrl } = login
  const { again, field, next } = kinds[clientId]
  yield* warnOfListeners(login)
  const { signIn } = yield* Effect.promise(() => import("./sign-in.ts"))
  const { browser, role } = asked
  const scopes = (grantable: ReadonlyArray<string>) => wantedScopes(asked, grantable)
  const organization = yield* signIn({ apiUrl, clientId, again, browser, role, scopes }, (made) =>
    Effect.as(
      amendEntry(apiUrl, made.organization, (before) => ({ ...before, [field]: made.id })),
      made.organization
    )
  )
  yield* say(`Signed in to "${organization}" at ${apiUrl}; ${next}`)
  const now = yield* loginOf(asked)
  if (now.organization !== organization)
    yield* say(`Commands here are about "${now.organization}"; --org ${organization} makes them be about it`)
  if ((yield* variable("SVC_TOKEN")) !== undefined) yield* say("SVC_TOKEN is set, and is used instead of it")
})
