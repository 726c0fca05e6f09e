/** `svc admin certificates`: what it needs is loaded when it runs. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import { asJson } from "#src/cli/flags.ts"

const ls = Command.make("ls", { json: asJson }, (flags) =>
  Effect.flatMap(
    Effect.promise(() => import("./certificates-command.ts")),
    (loaded) => loaded.ls(flags)
  )
).pipe(
  Command.withDescription("List the edge's certificates, the next to expire first, with what went wrong")
)

const renew = Command.make(
  "renew",
  {
    names: Argument.String("name").pipe(
      Argument.withDescription("A host name, or the wildcard of the apps domain in quotes"),
      Argument.variadic({ min: 1 })
    ),
    json: asJson
  },
  (flags) =>
    Effect.flatMap(
      Effect.promise(() => import("./certificates-command.ts")),
      (loaded) => loaded.renew(flags)
    )
).pipe(
  Command.withDescription(
    "Have certificates renewed now, or as soon as their authority allows; what is there is served until then"
  )
)

export const adminCertificates = Command.make("certificates").pipe(
  Command.withDescription("The certificates that the edge serves"),
  Command.withSubcommands([ls, renew])
)
