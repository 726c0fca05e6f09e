/** What follows from an instance that ended by itself: the more of them in a row, the longer until the next one. */
import type { AppRow, Crashed, Instance } from "#src/apps/app-state.ts"
import type { AppOptions } from "#src/apps/options.ts"
import { isFirstOfRound } from "./state-machine.ts"

/** Undefined: another one of its round ended before it, and counts for all of them. */
export const crashOf = (
  { backoffMs: [first, most] }: Pick<AppOptions, "backoffMs">,
  row: AppRow,
  instance: Instance,
  now: number
): Crashed | undefined => {
  if (!isFirstOfRound(row, instance)) return undefined
  const crashes = row.startedRevision === instance.revision ? row.crashes + 1 : 1
  const pause = Math.min(most, first * 2 ** Math.min(20, crashes - 1))
  return { crashes, nextStartAt: new Date(now + pause) }
}
