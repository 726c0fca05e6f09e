/** The commands of `svc admin` that are about organizations; what they need is loaded when they run. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { asJson } from "#src/cli/flags.ts"
import { BillingStatus } from "../api/orgs.ts"

const load = Effect.promise(() => import("./billing.ts"))

export const adminOrgs = Command.make("orgs", { json: asJson }, (flags) =>
  Effect.flatMap(load, (loaded) => loaded.organizations(flags))
).pipe(Command.withDescription("List every organization of the platform, with billing and what it holds"))

export const adminBilling = Command.make(
  "billing",
  {
    organization: Argument.String("organization").pipe(Argument.withDescription("Slug or id")),
    status: Argument.Literals("status", BillingStatus.literals).pipe(
      Argument.withDescription("unpaid → active → past_due → active or canceled")
    ),
    force: Flag.Boolean("force").pipe(
      Flag.withDescription("Set it whatever it was"),
      Flag.withDefault(false)
    ),
    json: asJson
  },
  (flags) => Effect.flatMap(load, (loaded) => loaded.billing(flags))
).pipe(Command.withDescription("Set an organization's billing status; what costs something needs active"))
