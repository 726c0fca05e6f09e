/** What must hold of everything that happened to one thing, in the order in which it happened. */
import { assert } from "@effect/vitest"
import { noLease } from "#src/engine/WorkStore.ts"
import type { Line } from "./place.ts"

/** Without a lease, at any time. */
const isLook = ({ fence }: Line): boolean => fence === Number(noLease)

/** `killed`: processes that were ended without warning. */
export const checkHistory = (all: ReadonlyArray<Line>, killed: ReadonlySet<string> = new Set()): void => {
  const uid = all[0]?.uid ?? ""
  const [looks, lines] = [all.filter(isLook), all.filter((line) => !isLook(line))]
  for (const { call } of looks) assert.strictEqual(call, "observe", `${uid}: a look changes nothing`)
  let open: Line | undefined
  let newest: Line | undefined
  for (const line of lines) {
    if (newest !== undefined) {
      assert.isAtLeast(line.fence, newest.fence, `${uid}: fences rise`)
      if (line.fence === newest.fence)
        assert.strictEqual(line.process, newest.process, `${uid}: a run belongs to one process`)
    }
    if (line.what === "begins") {
      // Only death ends a call without a word.
      if (open !== undefined)
        assert.isTrue(killed.has(open.process) && line.fence > open.fence, `${uid}: one call at a time`)
      open = line
    } else {
      assert.strictEqual(open?.fence, line.fence, `${uid}: what happens belongs to the call that is open`)
      assert.notStrictEqual(line.what, "is refused", `${uid}: nobody comes too late`)
      if (line.what === "ends") open = undefined
    }
    newest = line
  }
}
