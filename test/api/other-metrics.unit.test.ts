import { assert, it } from "@effect/vitest"
import { mergePages } from "#src/api/other-metrics.ts"

const page = (count: number, waiting: number, more = "") => `# HELP calls_total Calls
# TYPE calls_total counter
calls_total{kind="a b"} ${count}
# HELP waiting Who waits
# TYPE waiting gauge
waiting ${waiting}
# HELP seconds How long
# TYPE seconds histogram
seconds_bucket{le="+Inf"} ${count}
seconds_sum 0.5
seconds_count ${count}
${more}`

it("pages of several threads become one: counters and histograms are added up, gauges tell the largest", () => {
  const other = "# TYPE other gauge\nother -Inf\n"
  assert.strictEqual(
    mergePages([page(2, 7), page(3, 4, other)]),
    page(5, 7, other).replace("seconds_sum 0.5", "seconds_sum 1")
  )
})

it("a page alone stays as it is", () => {
  assert.strictEqual(mergePages([page(2, 7)]), page(2, 7))
})
