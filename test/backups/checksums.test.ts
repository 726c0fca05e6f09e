import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { checkPages } from "#src/backups/repository/checksums.ts"
import { Host } from "#src/infra/host/Host.ts"
import { PostgresBinaries } from "#src/infra/postgres/PostgresBinaries.ts"
import { initdbArguments } from "#src/infra/postgres/settings.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { databaseServices, databaseWorld } from "#test/setup/databases.ts"

describe("the checksums of pages", { timeout: 300_000 }, () => {
  it.live("are those that PostgreSQL itself wrote, and a changed bit in any page is found", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const world = yield* databaseWorld
        const data = path.join(world.dataDir, "data")
        yield* Effect.gen(function* () {
          const host = yield* Host
          const { initdb } = yield* PostgresBinaries
          const made = yield* host.run(initdb, initdbArguments(data))
          assert.strictEqual(made.code, 0, made.output)
        }).pipe(Effect.provide(databaseServices(world)))
        const check = (folder: string) => Effect.promise((signal) => checkPages(folder, signal, () => {}))
        const sound = yield* check(data)
        assert.strictEqual(sound.damaged, undefined)
        assert.isAbove(sound.pages, 1_000)

        // Few relations, since all of them are read for each bit.
        const few = path.join(world.dataDir, "few")
        const [from, folder] = [path.join(data, "base", "1"), path.join(few, "base", "1")]
        fs.mkdirSync(path.join(few, "global"), { recursive: true })
        fs.mkdirSync(folder, { recursive: true })
        const random = new Seeded(1)
        const all = fs
          .readdirSync(from)
          .filter((name) => /^\d+$/.test(name) && fs.statSync(path.join(from, name)).size > 0)
        const files = Array.from({ length: 8 }, () => random.pick(all) ?? "")
        for (const name of files) fs.copyFileSync(path.join(from, name), path.join(folder, name))
        let missed = 0
        for (let i = 0; i < 20; i++) {
          const name = random.pick(files) ?? ""
          const file = path.join(folder, name)
          const before = fs.readFileSync(file)
          const after = Buffer.from(before)
          const at = random.int(0, after.length - 1)
          after[at] = (after[at] ?? 0) ^ (1 << random.int(0, 7))
          fs.writeFileSync(file, after)
          const { damaged } = yield* check(few)
          // A checksum has sixteen bits: one page in 65,535 has the right one by chance.
          if (damaged === undefined) missed++
          else assert.strictEqual(damaged, `base/1/${name}: page ${Math.floor(at / 8_192)}`, `byte ${at}`)
          fs.writeFileSync(file, before)
        }
        assert.isAtMost(missed, 1)
      })
    )
  )
})
