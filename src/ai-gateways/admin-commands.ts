/** `svc admin ai`: what whoever operates the platform does about upstreams; what it needs is loaded when it runs. */
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import { asJson } from "#src/cli/flags.ts"

const check = Command.make("check", { json: asJson }, (flags) =>
  Effect.flatMap(
    Effect.promise(() => import("./check-command.ts")),
    (loaded) => loaded.check(flags)
  )
).pipe(
  Command.withDescription(
    "Ask each upstream of SVC_AI_UPSTREAMS for a few words; ends with 1 if one does not answer. It costs what they cost"
  )
)

export const adminAi = Command.make("ai").pipe(
  Command.withDescription("The models that AI gateways reach"),
  Command.withSubcommands([check])
)
