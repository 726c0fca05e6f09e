/** Looking for processes by what they were started with. */
import * as fs from "node:fs/promises"
import * as Effect from "effect/Effect"

/** Ids of processes whose command line holds the text, the lowest first. None where there is no /proc. */
export const processesNaming = (text: string): Effect.Effect<ReadonlyArray<number>> =>
  Effect.promise(async () => {
    const names = await fs.readdir("/proc").catch((): ReadonlyArray<string> => [])
    const found = names
      .filter((name) => /^\d+$/.test(name))
      .map(async (name) => {
        const line = await fs.readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "")
        return line.includes(text) ? [Number(name)] : []
      })
    return (await Promise.all(found)).flat().sort((a, b) => a - b)
  })
