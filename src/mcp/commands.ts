/** `svc mcp`: how MCP clients reach the control plane. */
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { authorized } from "#src/cli/bearer.ts"
import { asking, inBrowser } from "#src/cli/browser-login.ts"
import { connection, loginOf } from "#src/cli/flags.ts"
import { mcpCredential } from "#src/cli/login.ts"
import { out, paint } from "#src/cli/output.ts"
import { clients, configurations } from "./client-configurations.ts"

const mcpLogin = Command.make("login", { ...connection, ...asking }, (flags) =>
  inBrowser(flags, "svc-mcp")
).pipe(Command.withDescription("Sign in for svc mcp serve (clients that speak HTTP sign in themselves)"))

const mcpServe = Command.make("serve", connection, (flags) =>
  Effect.gen(function* () {
    const { bridge } = yield* Effect.promise(() => import("./stdio-bridge.ts"))
    const { apiUrl } = yield* loginOf(flags)
    yield* bridge({
      url: `${apiUrl}/mcp`,
      // Asked anew for each message: who signs in meanwhile need not start the client again.
      send: Effect.flatMap(loginOf(flags), (login) => authorized(fetch, mcpCredential(login))),
      hint: `A person signs in, or grants more, by running this in a terminal: svc mcp login --api-url ${apiUrl}`
    })
  })
).pipe(Command.withDescription("Serve MCP on standard input and output, for clients that know no HTTP"))

export const mcp = Command.make(
  "mcp",
  {
    ...connection,
    client: Flag.Literals("client", clients).pipe(
      Flag.withDescription("Only what goes into the configuration of this client"),
      Flag.optional
    )
  },
  (flags) =>
    Effect.gen(function* () {
      const { apiUrl } = yield* loginOf(flags)
      const known = configurations(apiUrl)
      if (Option.isSome(flags.client)) return yield* out(known[flags.client.value].text)
      for (const { title, where, text } of Object.values(known))
        yield* out(`${paint("bold", title)}  ${where}\n\n${text}\n`)
    })
).pipe(
  Command.withDescription("Print what makes MCP clients use the control plane"),
  Command.withSubcommands([mcpLogin, mcpServe])
)
