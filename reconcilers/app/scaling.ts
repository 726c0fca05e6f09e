/**
 * How many instances an app is to have: between its two bounds as many as the requests under way need. More are started at
 * once; one at a time is ended, after fewer were enough for a while.
 */
import type { AppSpec } from "#schemas/app.ts"
import type { Situation, Step } from "./situation.ts"

export const mostInstances = ({ instances, maxInstances }: Pick<AppSpec, "instances" | "maxInstances">) =>
  Math.max(instances, maxInstances)

/** `isHeld`: this is no moment to judge by the requests. */
export const scaling = (
  { now, spec, state, site, options }: Situation,
  isHeld: boolean
): { readonly count: number; readonly step?: Step } => {
  const most = mostInstances(spec)
  const within = (count: number) => Math.min(most, Math.max(spec.instances, count))
  const scale = state?.row.scale ?? null
  const count = within(scale ?? 0)
  if (isHeld || site === undefined || site.origin !== null) return { count }
  const needed = within(Math.ceil(site.requests / spec.requestsPerInstance))
  const since = now - (state?.row.scaleAt?.getTime() ?? 0)
  const to = (wanted: number) =>
    ({ count, step: { do: "scale", to: wanted === spec.instances ? null : wanted } }) as const
  if (needed > count) return to(needed)
  if (needed < count) return since > options.scaleDownMs ? to(count - 1) : { count }
  // Noted now and then: the time for which fewer are enough begins after it.
  if (count > spec.instances && since > options.scaleDownMs / 2) return to(count)
  // Of other bounds.
  return scale !== null && count === spec.instances ? to(count) : { count }
}
