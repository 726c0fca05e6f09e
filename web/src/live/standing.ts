/** How a resource is doing, in the words and the order in which people look at it. */
import type { Condition, ConditionType } from "#schemas/condition.ts"
import type { Resource } from "./resources.ts"

export type Standing = "failed" | "stalled" | "drifted" | "waiting" | "paused" | "ready"

export const conditionOf = (resource: Resource, type: ConditionType): Condition | undefined =>
  resource.conditions.find((condition) => condition.type === type)

export const standingOf = (resource: Resource): Standing => {
  const holds = (type: ConditionType) => conditionOf(resource, type)?.status === "true"
  if (resource.phase === "failed") return "failed"
  if (holds("Stalled")) return "stalled"
  if (holds("Paused")) return "paused"
  if (holds("Drifted")) return "drifted"
  const settled = resource.phase === "ready" && resource.observedGeneration >= resource.generation
  return settled && holds("Ready") ? "ready" : "waiting"
}

/** What is worst comes first. */
export const order: ReadonlyArray<Standing> = ["failed", "stalled", "drifted", "waiting", "paused", "ready"]

const words: Readonly<Record<Standing, string>> = {
  failed: "Failed",
  stalled: "Stalled",
  drifted: "Drifted",
  waiting: "Waiting",
  paused: "Paused",
  ready: "Ready"
}
const phases: Readonly<Partial<Record<Resource["phase"], string>>> = {
  pending: "Pending",
  provisioning: "Provisioning",
  updating: "Updating",
  deleting: "Deleting"
}

export const wordOf = (resource: Resource): string => {
  const standing = standingOf(resource)
  return (standing === "waiting" ? phases[resource.phase] : undefined) ?? words[standing]
}

/** The condition that says why it stands so. */
export const whyOf = (resource: Resource): Condition | undefined => {
  const standing = standingOf(resource)
  if (standing === "paused") return conditionOf(resource, "Paused")
  if (standing === "drifted") return conditionOf(resource, "Drifted")
  if (standing === "stalled") return conditionOf(resource, "Stalled")
  return conditionOf(resource, "Ready")
}
