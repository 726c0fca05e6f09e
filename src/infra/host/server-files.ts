/** The folders of all managed servers of this machine. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"

export interface ServerFile {
  /** Name of the server's folder. */
  readonly server: string
  readonly file: string
}

/** Where each server has the file of this name, by its kind; whether it is there is not looked at. */
export const serverFiles = (
  dataDir: string,
  names: { readonly databases: string; readonly caches: string }
): Effect.Effect<ReadonlyArray<ServerFile>> =>
  Effect.promise(async () => {
    const found: Array<ServerFile> = []
    for (const [kind, name] of Object.entries(names)) {
      const dir = path.join(dataDir, kind)
      const servers = await fs.readdir(dir).catch((): Array<string> => [])
      found.push(...servers.map((server) => ({ server, file: path.join(dir, server, name) })))
    }
    return found
  })
