/** Whether an organization pays, for what is done in its name without a request: requests are refused on their way in. */
import * as Effect from "effect/Effect"
import { Db, repeatable } from "#src/store/Db.ts"

export const billingInactive = "Billing of the organization is not active; an owner must activate it"

export const makeBillingActive = Effect.map(
  Db,
  ({ engine: sql }) =>
    (orgId: string) =>
      Effect.map(
        repeatable(sql<{ readonly active: boolean }>`
          select billing_status = 'active' as active from organization where id = ${orgId}::uuid`),
        ([row]) => row?.active === true
      )
)
