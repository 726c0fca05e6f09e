import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { systemIdentifierIn } from "#src/infra/postgres/system-identifier.ts"

it.effect(
  "data that is away or damaged has no identifier, so it is not taken for that of another server",
  () =>
    Effect.gen(function* () {
      const data = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
      yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(data, { recursive: true })))
      const file = path.join(data, "global", "pg_control")
      assert.isUndefined(yield* systemIdentifierIn(path.join(data, "nowhere")))
      assert.isUndefined(yield* systemIdentifierIn(data))
      fs.mkdirSync(path.dirname(file))
      for (const damaged of [Buffer.alloc(0), Buffer.alloc(7, 1), Buffer.alloc(8192)]) {
        fs.writeFileSync(file, damaged)
        assert.isUndefined(yield* systemIdentifierIn(data))
      }
      fs.writeFileSync(file, Buffer.alloc(8192, 1))
      assert.strictEqual(yield* systemIdentifierIn(data), String(0x0101_0101_0101_0101n))
    })
)
