import { Simulation } from "./simulation.ts"

const from = Number(process.argv[2] ?? 1),
  to = Number(process.argv[3] ?? from)
const verbose = process.argv[4] === "v"
const flaws = process.argv[5] ? [process.argv[5] as never] : []
const t0 = performance.now()
const by: Record<string, Array<string>> = {}
const total: Record<string, number> = {}
for (let seed = from; seed <= to; seed++) {
  const sim = new Simulation(seed, { flaws, fencedFarEnd: process.argv[6] !== "unfenced" })
  const t = performance.now()
  try {
    sim.run()
  } catch (e) {
    const m = e instanceof Error ? e.message : String(e)
    ;(by[m.split(":")[0]!] ??= []).push(`${seed} ${m}`)
    if (verbose) {
      console.log(sim.watcher.history.slice(-Number(process.env.N ?? 60)).join("\n"))
      console.log((e as Error).stack)
    }
  }
  for (const [k, v] of Object.entries(sim.watcher.counts)) total[k] = (total[k] ?? 0) + v
}
const n = to - from + 1
console.log(
  n,
  "seeds",
  ((performance.now() - t0) / n).toFixed(1),
  "ms each",
  Object.fromEntries(Object.entries(total).map(([k, v]) => [k, (v / n).toFixed(1)]))
)
for (const [k, v] of Object.entries(by)) console.log(k, v.length, v.slice(0, 4))
