import { Simulation } from "./simulation.ts"
const sim = new Simulation(Number(process.argv[2]))
const note = sim.watcher.note.bind(sim.watcher)
sim.watcher.note = (w) => { console.log(((sim.timeline.now % 86_400_000) / 1000).toFixed(3) + " " + w); note(w) }
try { sim.run() } catch (e) { console.log(e) }
