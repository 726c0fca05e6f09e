import { assert, it } from "@effect/vitest"
import { chart, shown, sparkline } from "#src/metrics/drawing.ts"
import type { Measured } from "#src/metrics/MetricHistory.ts"
import { openMetrics } from "#src/metrics/openmetrics.ts"
import { parse } from "./openmetrics-parser.ts"

const measured = (name: string, values: Measured["values"]): Measured => ({
  uid: "0190c0de-0000-7000-8000-000000000000",
  kind: "Cache",
  name,
  project: "shop",
  environment: "production",
  at: new Date(),
  ageSeconds: 1,
  values,
  kept: true
})

it("the export holds to the format, with each family once and labels that no name breaks out of", () => {
  const evil = 'a"} 1\n# EOF\\'
  const text = openMetrics(
    [
      measured("one", { "cpu.percent": 12.5, "redis.hits": 0 }),
      measured(evil, { "cpu.percent": 1e-7, "memory.used_bytes": 1e21 }),
      { ...measured("destination", { "cpu.percent": 3 }), project: null, environment: null }
    ],
    false
  )
  const { families, samples } = parse(text)
  const cpu = samples.filter(({ name }) => name === "svc_cpu_percent")
  assert.deepStrictEqual(
    cpu.map(({ labels, value }) => [labels["name"], value]),
    [
      ["one", 12.5],
      [evil, 1e-7],
      ["destination", 3]
    ]
  )
  assert.deepStrictEqual(cpu[0]?.labels, {
    project: "shop",
    environment: "production",
    kind: "Cache",
    name: "one"
  })
  assert.match(families.get("svc_cpu_percent")?.help ?? "", /processor.*\(percent\)$/)
  assert.deepInclude(samples, { name: "svc_memory_used_bytes", labels: cpu[1]?.labels ?? {}, value: 1e21 })
  assert.deepInclude(samples, { name: "svc_export_truncated", labels: {}, value: 0 })
})

it("an export of nothing is whole, and one that leaves something out says so", () => {
  assert.deepStrictEqual(parse(openMetrics([], true)).samples, [
    { name: "svc_export_truncated", labels: {}, value: 1 }
  ])
})

it("numbers have the unit that people read", () => {
  assert.deepStrictEqual(
    [
      shown(1_536, "bytes"),
      shown(3, "bytes_per_second"),
      shown(12_345, "count"),
      shown(2.25, "per_minute"),
      shown(99.94, "percent"),
      shown(1, "boolean"),
      shown(7_200, "seconds"),
      shown(12.34, "milliseconds"),
      shown(null, "count")
    ],
    ["1.5 KiB", "3 B/s", "12.3 k", "2.3/min", "99.9 %", "yes", "2.0 h", "12.3 ms", "-"]
  )
})

it("a line of blocks has a character for each value, and a blank where there is none", () => {
  assert.strictEqual(sparkline([0, null, 50, 100]), "▁ ▅█")
  assert.strictEqual(sparkline([5, 5]), "▁▁")
  assert.strictEqual(sparkline([null]), "")
})

it("a chart reaches from zero to the greatest value, and a value that is not zero is seen", () => {
  const drawn = chart([0, 8, 16, null, 1], "count", { from: "a", to: "b" }, 2)
  assert.deepStrictEqual(drawn.split("\n"), ["16 ┤  █", " 0 ┤▁██ ▁", "    a   b"])
  assert.strictEqual(chart([null], "count", { from: "a", to: "b" }), "There is no sample in this time")
})
