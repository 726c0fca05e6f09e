/** What tenants read of faults: no folder, no address, no port of this machine. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { asFailed } from "#src/backups/base.ts"
import { addressFault } from "#src/backups/destinations/faults.ts"
import { detailOf } from "#src/backups/error-messages.ts"
import { localPlace } from "#src/backups/repository/Place.ts"
import { putSealed } from "#src/backups/repository/transfer.ts"
import { backupFiles, switchLog } from "#src/infra/postgres/backup.ts"
import { AddressBlocked } from "#src/outbound/lookup.ts"

const key = Buffer.alloc(32, 1)
const object = { name: "wal/000000010000000000000001", backupId: null, finishedAt: null }

const folder = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-sentences-"))),
  (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true }))
)
/** The folder is in what the log gets, so that there was something to keep back. */
const keptBack = (dir: string, error: Error, expected: RegExp) => {
  assert.match(error.message, expected)
  assert.notInclude(error.message, dir)
  assert.include(detailOf(error), dir)
}

describe("sentences about faults", () => {
  it.live("tell what the repository cannot do", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const dir = yield* folder
        const place = localPlace(dir)
        fs.writeFileSync(path.join(dir, "wal"), "a file where a folder should be")
        fs.mkdirSync(path.join(dir, "full/x/y"), { recursive: true })
        const put = yield* Effect.flip(place.put("wal/1", Stream.make(Buffer.from("x"))))
        keptBack(dir, put, /^Cannot write wal\/1: .*\((ENOTDIR|EEXIST)\)$/)
        keptBack(
          dir,
          yield* Effect.flip(Stream.runDrain(place.get("none"))),
          /^Cannot read none: it is not there/
        )
        keptBack(dir, yield* Effect.flip(place.remove(["full/x"])), /^Cannot remove a backup: the machine/)
        const source = yield* Effect.flip(
          putSealed(place, key, "one", object, async function* () {
            yield await fs.promises.readFile(path.join(dir, "gone"))
          })
        )
        keptBack(dir, source, /it is not there \(ENOENT\)$/)
      })
    )
  )

  it.live("tell what a server or its files do not do", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const dir = yield* folder
        const refused = yield* Effect.flip(switchLog({ socketDir: dir, port: 5999 }))
        keptBack(dir, asFailed(refused), /^The database server refused, or did not answer \(ENOENT\)$/)
        fs.writeFileSync(path.join(dir, "file"), "")
        const files = yield* Effect.flip(backupFiles(path.join(dir, "file")))
        keptBack(dir, asFailed(files), /^The database server refused, or did not answer|cannot be used/)
        assert.strictEqual(asFailed(asFailed(files)).message, asFailed(files).message)
      })
    )
  )

  it("tell that an address is none to go to, and not which", () => {
    const error = addressFault(
      new AddressBlocked({ message: "s3.example.test (10.1.2.3) is a private address" })
    )
    assert.strictEqual(error.reason, "blocked_address")
    assert.notMatch(error.message, /10\.1\.2\.3|private/)
  })
})
