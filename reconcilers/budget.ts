/** A budget has nothing outside: what this keeps true is that the books go by what the resource says. */
import { isDeepStrictEqual } from "node:util"
import * as Effect from "effect/Effect"
import { Budget, type BudgetSpec } from "#schemas/budget.ts"
import { Budgets } from "#src/budgets/Budgets.ts"
import { settingsOf } from "#src/budgets/settings-of.ts"
import { externalCall } from "#src/engine/external-call.ts"
import { absent, type Resource, Retryable, register } from "#src/engine/Reconciler.ts"

const retryable = Effect.mapError(
  (error: { readonly message: string }) => new Retryable({ message: error.message })
)
const late = new Retryable({ message: "A later budget is in force; this reconcile stops" })

export const layer = register(
  Budget,
  { driftInterval: "15 minutes", concurrency: 32 },
  Effect.gen(function* () {
    const budgets = yield* Budgets
    const placeOf = ({
      orgId,
      projectId,
      uid
    }: Pick<Resource<BudgetSpec>, "orgId" | "projectId" | "uid">) => ({
      orgId,
      projectId: projectId ?? "",
      uid
    })
    return {
      observe: Effect.fnUntraced(function* (resource) {
        const { orgId, projectId } = placeOf(resource)
        const look = externalCall("budget.look", "read")(budgets.get(orgId, projectId))
        const { uid, revision, monthlyCap, alertPercent, hardStop } = yield* retryable(look)
        // Another resource of the project may be in force: what takes the place of this one.
        if (uid !== resource.uid) return absent
        const matches =
          Number(revision) > resource.generation ||
          (Number(revision) === resource.generation &&
            isDeepStrictEqual({ monthlyCap, alertPercent, hardStop }, settingsOf(resource.spec)))
        return {
          _tag: "Present" as const,
          status: {},
          ready: matches,
          differences: matches ? [] : [{ field: "/monthlyCapUsd", message: "another budget is in force" }]
        }
      }),
      converge: Effect.fnUntraced(function* (resource) {
        const { spec, generation, fence } = resource
        const enforce = budgets.enforce({ ...placeOf(resource), ...settingsOf(spec), generation, fence })
        if (!(yield* retryable(externalCall("budget.enforce", "write")(enforce)))) return yield* late
      }),
      remove: Effect.fnUntraced(function* (resource) {
        const forget = budgets.forget({ ...placeOf(resource), fence: resource.fence })
        if (!(yield* retryable(externalCall("budget.forget", "write")(forget)))) return yield* late
      })
    }
  })
)
