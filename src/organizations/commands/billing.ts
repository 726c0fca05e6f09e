/** `svc admin orgs` and `svc admin billing`: what whoever operates the platform sees and decides about organizations. */
import { randomUUID } from "node:crypto"
import * as Effect from "effect/Effect"
import { onStore } from "#src/cli/admin.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { json, out, say, table } from "#src/cli/output.ts"
import { Db } from "#src/store/Db.ts"
import { billingMoves, listOrganizations, moveBilling } from "../Billing.ts"
import type { BillingStatus } from "../Organizations.ts"

export const organizations = (flags: { readonly json: boolean }) =>
  onStore(
    Effect.gen(function* () {
      const { engine } = yield* Db
      const found = yield* listOrganizations(engine)
      if (flags.json) return yield* json(found)
      yield* out(
        table(
          ["ORGANIZATION", "BILLING", "MEMBERS", "RESOURCES", "NAME"],
          found.map((one) => [
            one.slug,
            one.deleting ? "(being deleted)" : one.billingStatus,
            String(one.members),
            String(one.resources),
            one.name
          ])
        )
      )
    })
  )

export const billing = (flags: {
  readonly organization: string
  readonly status: BillingStatus
  readonly force: boolean
  readonly json: boolean
}) =>
  onStore(
    Effect.gen(function* () {
      const { engine } = yield* Db
      const moved = yield* moveBilling(engine, flags.organization, flags.status, flags.force, {
        principal: "operator",
        credential: "none",
        operation: "admin.billing",
        requestId: randomUUID(),
        address: null,
        outcome: 200
      })
      switch (moved._tag) {
        case "Missing":
          return yield* failure(`There is no organization "${flags.organization}"`, exitCodes.notFound)
        case "Refused":
          return yield* failure(
            `"${flags.organization}" is ${moved.from}: that becomes ${billingMoves[moved.from].join(" or ")}. --force sets it all the same`,
            exitCodes.conflict
          )
        case "Moved":
          if (flags.json)
            return yield* json({ organization: moved.slug, from: moved.from, billingStatus: moved.to })
          yield* say(
            moved.from === moved.to
              ? `"${moved.slug}" is ${moved.to} already`
              : `"${moved.slug}" was ${moved.from} and is ${moved.to} now`
          )
      }
    })
  )
