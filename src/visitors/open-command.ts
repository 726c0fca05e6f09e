/** `svc open`: the address of an environment, in the browser. */
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { OpenBrowser } from "#src/cli/open-browser.ts"
import { exact, json, say } from "#src/cli/output.ts"
import { commandIn, inEnvironment } from "#src/cli/resource-commands.ts"

export const open = commandIn(inEnvironment)(
  "open",
  {
    browser: Flag.Boolean("browser").pipe(
      Flag.withDescription("Open a browser (--no-browser: only print the address)"),
      Flag.withDefault(true)
    )
  },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      const environments = yield* call(client.asMember.environments.list({ params }))
      const found = environments.find(({ slug }) => slug === where.environment)
      const name = `${where.project}/${where.environment}`
      if (found === undefined) return yield* failure(`There is no environment ${name}`, exitCodes.notFound)
      const { address } = found
      if (address === null)
        return yield* failure(
          `${name} has no address yet; svc status tells how it is doing`,
          exitCodes.failure
        )
      const opened = !asJson && flags.browser && (yield* (yield* OpenBrowser)(new URL(address)))
      if (asJson) return yield* json({ address })
      if (flags.browser && !opened) yield* say("No browser could be opened here; go there yourself:")
      yield* exact(address)
    })
).pipe(
  Command.withDescription("Open the address of an environment in the browser, and print it"),
  Command.withExamples([
    { command: "svc open shop", description: "Production" },
    { command: "svc open shop -e staging --no-browser", description: "Print where staging is" }
  ])
)
