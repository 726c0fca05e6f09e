/** Building conditions: the engine alone decides them, for every kind alike. */
import { type Condition, type ConditionType, engineReasons } from "#schemas/condition.ts"
import type { Kind } from "#schemas/kind.ts"

export interface ConditionInput {
  readonly type: ConditionType
  readonly status: Condition["status"]
  readonly reason: string
  readonly message: string
}

export const findCondition = (
  conditions: ReadonlyArray<Condition>,
  type: ConditionType
): Condition | undefined => conditions.find((condition) => condition.type === type)

/**
 * The next conditions, stamped. The time of transition moves only when the status does. A condition that is
 * false for a normal reason and was never there stays away: nobody needs to read that nothing is stalled.
 */
export const nextConditions = (
  previous: ReadonlyArray<Condition>,
  inputs: ReadonlyArray<ConditionInput>,
  generation: number,
  now: number
): ReadonlyArray<Condition> => {
  const at = new Date(now).toISOString()
  return inputs.flatMap((input) => {
    const before = findCondition(previous, input.type)
    const optional = !isGood(input.type)
    if (before === undefined && optional && input.status === "false") return []
    return [
      {
        ...input,
        lastTransitionAt: before?.status === input.status ? before.lastTransitionAt : at,
        observedGeneration: generation
      }
    ]
  })
}

/** What changed between two sets, for the history: one entry for each status or reason that moved. */
export const transitions = (
  previous: ReadonlyArray<Condition>,
  next: ReadonlyArray<Condition>
): ReadonlyArray<Condition> =>
  next.filter((condition) => {
    const before = findCondition(previous, condition.type)
    return before?.status !== condition.status || before.reason !== condition.reason
  })

/** Whether "true" is the good status of a condition. */
export const isGood = (type: ConditionType): boolean => type === "Ready" || type === "Synced"

const isBad = (condition: Condition): boolean =>
  condition.status === (isGood(condition.type) ? "false" : "true")

export const eventType = (kind: Pick<Kind, "reasons">, condition: Condition): "Normal" | "Warning" =>
  isBad(condition) ? severityOf(kind, condition.reason) : "Normal"

const ofEngine: Kind["reasons"] = engineReasons

/** Whether somebody should look into what has this reason. */
export const severityOf = ({ reasons }: Pick<Kind, "reasons">, reason: string): "Normal" | "Warning" =>
  (reasons[reason] ?? ofEngine[reason])?.severity === "progress" ? "Normal" : "Warning"
