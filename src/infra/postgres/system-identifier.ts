/**
 * Which data a folder holds: initdb draws an identifier, and every physical copy has the same one. So it tells the data
 * of one database from that of another, and does not tell a database from its branches and standbys.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"

/**
 * Read without the server, which may be down: `system_identifier` is the first field of `ControlFileData`
 * (src/include/catalog/pg_control.h), 8 bytes in the order of the machine. Undefined: there is none to read, or the file
 * is damaged; the server will not start then.
 */
export const systemIdentifierIn = (dataFolder: string): Effect.Effect<string | undefined> =>
  Effect.promise(async () => {
    const file = await fs.open(path.join(dataFolder, "global", "pg_control")).catch(() => undefined)
    if (file === undefined) return undefined
    try {
      const { bytesRead, buffer } = await file.read(new BigUint64Array(1))
      return bytesRead === 8 && buffer[0] ? String(buffer[0]) : undefined
    } finally {
      await file.close()
    }
  })
