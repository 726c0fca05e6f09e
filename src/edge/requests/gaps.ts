/**
 * How many numbered lines did not arrive. Lines of several threads overtake each other, so a gap counts only once a whole
 * round has not filled it.
 */
interface Source {
  /** The largest number up to the last round. */
  seen: number
  largest: number
  arrived: number
  missing: number
}

/** Processes of the proxy that may be told apart, each with its frontends. */
const mostSources = 16

export interface Gaps {
  readonly arrived: (source: string, number: number) => void
  /** Ends a round, and answers how many lines are lost for good. */
  readonly round: () => number
}

export const makeGaps = (): Gaps => {
  const sources = new Map<string, Source>()
  return {
    arrived: (name, number) => {
      const source = sources.get(name)
      if (source === undefined) {
        if (sources.size >= mostSources) sources.clear()
        sources.set(name, { seen: number - 1, largest: number, arrived: 1, missing: 0 })
        return
      }
      source.largest = Math.max(source.largest, number)
      source.arrived++
    },
    round: () => {
      let lost = 0
      for (const source of sources.values()) {
        const missing = source.largest - source.seen - source.arrived
        lost += Math.max(0, source.missing + Math.min(0, missing))
        source.missing = Math.max(0, missing)
        source.seen = source.largest
        source.arrived = 0
      }
      return lost
    }
  }
}
