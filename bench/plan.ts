/** Plans of 1,000 and 10,000 resources. */
import * as Result from "effect/Result"
import { parseManifest } from "#src/manifest/parse.ts"
import { makePlan } from "#src/manifest/plan.ts"
import type { Figure } from "./figures.ts"

/** Planning: reading the document and finding the differences, without the store. */
export const plan = async (): Promise<ReadonlyArray<Figure>> => {
  const figures: Array<Figure> = []
  for (const count of [1_000, 10_000]) {
    const caches = Array.from({ length: count }, (_, i) => ({
      name: `cache-${i}`,
      region: "local",
      sku: "cache-n1"
    }))
    const source = JSON.stringify({
      version: 1,
      organization: "main",
      projects: [{ name: "P", slug: "project", runtimeClass: "always-on", caches }]
    })
    const options = {
      prune: true,
      confirm: [],
      fingerprint: (value: string) => value,
      regions: ["local"]
    } as const
    const read = () => {
      const parsed = parseManifest(source)
      if (Result.isFailure(parsed)) throw new Error(JSON.stringify(parsed.failure))
      return parsed.success.manifest
    }
    const created = makePlan(read(), [], options)
    const current = created.steps.map((step) => ({
      ...step,
      project: "project",
      generation: 1,
      protected: false,
      deleting: false,
      spec: step.name.endsWith("7") ? { ...step.spec, sku: "cache-s1" } : step.spec
    }))
    globalThis.gc?.()
    const memory = process.memoryUsage().heapUsed
    const startedAt = performance.now()
    const made = makePlan(read(), current, options)
    const seconds = (performance.now() - startedAt) / 1000
    const grown = (process.memoryUsage().heapUsed - memory) / 1e6
    if (made.changes.length < count) throw new Error("the plan is incomplete")
    figures.push({
      name: `plan of ${count} resources`,
      value: seconds,
      unit: "s",
      ...(count === 10_000 ? { aim: "< 2" } : {}),
      note: `${grown.toFixed(0)} MB`
    })
  }
  return figures
}
