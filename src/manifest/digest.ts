/**
 * What a plan does, as keyed digests: two plans with the same ones do the same to the same resources, whatever ids they give
 * to what they make. They hold nothing of the values.
 */
import type { Plan, Step } from "./change.ts"

export interface PlanDigest {
  /** Of all that it does, and of what keeps it from being done. */
  readonly whole: string
  /** By the address of each resource that it changes. */
  readonly parts: Readonly<Record<string, string>>
  /** Of everything that the plan looked at. */
  readonly base: string
}

export const digestOf = (
  { changes, steps, blockers, base }: Plan,
  fingerprint: (value: string) => string
): PlanDigest => {
  const made = new Map(
    steps.flatMap(
      ({ action, uid, address }): ReadonlyArray<[string, string]> =>
        action === "create" ? [[uid, address]] : []
    )
  )
  const byAddress = Map.groupBy(steps, ({ address }) => address)
  const parts = Object.fromEntries(
    changes
      .filter(({ action }) => action !== "noop")
      .map(({ address, action, patch }): [string, string] => [
        address,
        fingerprint(
          JSON.stringify([action, patch, (byAddress.get(address) ?? []).map((step) => stepOf(step, made))])
        )
      ])
      .sort(([a], [b]) => (a < b ? -1 : 1))
  )
  const obstacles = blockers.map(({ code, pointer }) => `${code} ${pointer}`).sort()
  return {
    whole: fingerprint(JSON.stringify([parts, obstacles])),
    parts,
    base: fingerprint(JSON.stringify(Object.entries(base).sort(([a], [b]) => (a < b ? -1 : 1))))
  }
}

/** What is to be made is known by its address: its id is another one in each plan. What is there is known by its id. */
const stepOf = (
  { action, uid, kind, projectId, environment, name, parentUid, spec }: Step,
  made: ReadonlyMap<string, string>
) => {
  const known = (id: string | null) => (id === null ? null : (made.get(id) ?? id))
  return [
    ...[action, known(uid), kind, known(projectId), environment, name, known(parentUid)],
    JSON.parse(JSON.stringify(spec), (_, value: unknown) =>
      typeof value === "string" ? (made.get(value) ?? value) : value
    )
  ]
}
