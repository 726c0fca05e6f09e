import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { removeOrphanedSegments } from "./shared-memory.ts"

it.skipIf(process.platform !== "linux")(
  "segments of servers that are gone are removed; those of earlier times, and new ones, stay",
  async () => {
    const now = Date.now()
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-segments-"))
    const made = [5, 60, 0].map((seconds, index) => {
      const file = path.join(folder, `PostgreSQL.${index}`)
      fs.writeFileSync(file, "")
      fs.utimesSync(file, new Date(now), new Date(now - seconds * 1_000))
      return file
    })
    try {
      await removeOrphanedSegments(now - 30_000, { folder, serverRuns: () => true, patienceMs: 0 })
      assert.isTrue(
        made.every((file) => fs.existsSync(file)),
        "a server runs, and may need them"
      )
      let backends = 2
      await removeOrphanedSegments(now - 30_000, { folder, serverRuns: () => backends-- > 0 })
      assert.deepStrictEqual(
        made.map((file) => fs.existsSync(file)),
        [false, true, true]
      )
    } finally {
      fs.rmSync(folder, { recursive: true })
    }
  }
)
