/** The line of moments that a database can be put back to. */
import { assert, it } from "@effect/vitest"
import { isWithin, placeOn, recoveryLine } from "../../web/src/panels/recovery-line.ts"
import { bytes, dollars } from "../../web/src/parts/amounts.ts"

const at = (minutes: number) => Date.parse("2026-11-22T12:00:00Z") + minutes * 60_000
const window = (from: number, to: number) => ({
  from: new Date(at(from)).toISOString(),
  to: new Date(at(to)).toISOString()
})

it("goes from the first moment to now, and the last window to now while the log is archived", () => {
  const { line, spans } = recoveryLine([window(30, 40), window(0, 10)], true, at(50))
  assert.deepStrictEqual(line, { from: at(0), to: at(50) })
  assert.deepStrictEqual(spans, [
    { from: at(0), to: at(10) },
    { from: at(30), to: at(50) }
  ])
  assert.strictEqual(placeOn(line, at(25)), 50)
  assert.isTrue(isWithin(spans, at(5)))
  assert.isFalse(isWithin(spans, at(20)))
})

it("ends where the log ends while it is not archived, and has a length while nothing is there", () => {
  assert.isFalse(isWithin(recoveryLine([window(0, 10)], false, at(50)).spans, at(11)))
  assert.deepStrictEqual(recoveryLine([], true, at(1)), { line: { from: at(0), to: at(1) }, spans: [] })
})

it("amounts are as people read them", () => {
  assert.deepStrictEqual([bytes(0), bytes(1_536), bytes(2 ** 31)], ["0 B", "1.5 KiB", "2 GiB"])
  assert.deepStrictEqual([dollars(0), dollars(0.0031), dollars(12)], ["0.00 USD", "0.0031 USD", "12.00 USD"])
})
