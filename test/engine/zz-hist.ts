import { Simulation } from "./simulation.ts"

const sim = new Simulation(Number(process.argv[2]))
const note = sim.cluster.watcher.note.bind(sim.cluster.watcher)
sim.cluster.watcher.note = (w: string) => {
  console.log(((sim.cluster.timeline.now % 86_400_000) / 1000).toFixed(3) + " " + w)
  note(w)
}
try {
  sim.run()
} catch (e) {
  console.log(e)
}
