/**
 * Branching from a running database against `cp -a` of the same folder, in turns. `BENCH_MB=100,1000,5000` chooses the
 * sizes.
 */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Host } from "#src/infra/host/Host.ts"
import { backupFiles, withBackup } from "#src/infra/postgres/backup.ts"
import { copyFiles } from "#src/infra/postgres/copy.ts"
import { PostgresServers } from "#src/infra/postgres/PostgresServers.ts"
import { branchWorld, makeBranch, settleBranch } from "#test/setup/branches.ts"
import { asApplication, databaseServices, folderOf } from "#test/setup/databases.ts"
import { type Figure, median } from "./figures.ts"

const sizes = (process.env["BENCH_MB"] ?? "100,1000").split(",").map(Number)
const rounds = 3
const seconds = <A, E, R>(self: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const startedAt = performance.now()
    yield* self
    return (performance.now() - startedAt) / 1_000
  })

export const branches = (): Promise<ReadonlyArray<Figure>> => Effect.runPromise(Effect.scoped(measure))

const measure = Effect.gen(function* () {
  const figures: Array<Figure> = []
  for (const size of sizes) {
    const world = yield* branchWorld
    yield* asApplication(world, world.source, (sql) =>
      sql.unsafe(
        `create table filling as select n, repeat(md5(n::text), 30) as text from generate_series(1, ${size * 980}) n`
      )
    )
    const from = path.join(folderOf(world, world.source), "data")
    const into = path.join(world.dataDir, "copy")
    const measured = Effect.gen(function* () {
      const host = yield* Host
      const endpoint = Option.getOrThrow(yield* (yield* PostgresServers).endpoint(world.source.uid))
      let bytes = 0
      const copy = Effect.gen(function* () {
        const what = yield* backupFiles(from)
        bytes = what.bytes
        yield* copyFiles({ from, into, what, owner: host.runAs, onBytes: () => {} })
      })
      const times = {
        cp: [] as Array<number>,
        cpSync: [] as Array<number>,
        copy: [] as Array<number>,
        branch: [] as Array<number>
      }
      let rss = 0
      const watch = setInterval(() => {
        rss = Math.max(rss, process.memoryUsage.rss())
      }, 20)
      const before = process.memoryUsage.rss()
      for (let round = 0; round < rounds; round++) {
        times.cp.push(
          yield* seconds(Effect.sync(() => execFileSync("cp", ["-a", from, into], { stdio: "ignore" })))
        )
        times.cpSync.push(
          (times.cp.at(-1) ?? 0) +
            (yield* seconds(Effect.sync(() => execFileSync("sync", ["-f", into], { stdio: "ignore" }))))
        )
        fs.rmSync(into, { recursive: true, force: true })
        // What one leaves for the disk to do is not the next one's to pay.
        execFileSync("sync")
        fs.mkdirSync(into)
        times.copy.push(yield* seconds(withBackup(endpoint, copy)))
        fs.rmSync(into, { recursive: true, force: true })
        execFileSync("sync")
        times.branch.push(yield* seconds(settleBranch(world, makeBranch(world), 600_000)))
      }
      clearInterval(watch)
      const perSecond = (list: ReadonlyArray<number>) => bytes / 1e6 / median(list)
      const name = `${Math.round(bytes / 1e6)} MB`
      figures.push(
        { name: `${name}: cp -a`, value: perSecond(times.cp), unit: "MB/s", note: "not made durable" },
        { name: `${name}: cp -a and sync`, value: perSecond(times.cpSync), unit: "MB/s", note: "durable" },
        {
          name: `${name}: compared, durable copy of the live one`,
          value: perSecond(times.copy),
          unit: "MB/s"
        },
        {
          name: `${name}: copy against cp -a`,
          value: perSecond(times.copy) / perSecond(times.cp),
          unit: "",
          aim: ">= 0.5"
        },
        {
          name: `${name}: copy against cp -a and sync`,
          value: perSecond(times.copy) / perSecond(times.cpSync),
          unit: ""
        },
        { name: `${name}: branch, asked for to ready`, value: perSecond(times.branch), unit: "MB/s" },
        {
          name: `${name}: branch against cp -a`,
          value: perSecond(times.branch) / perSecond(times.cp),
          unit: ""
        },
        { name: `${name}: memory on top`, value: (rss - before) / 1e6, unit: "MB", aim: "flat" }
      )
    })
    yield* measured.pipe(Effect.provide(databaseServices(world), { local: true }))
  }
  return figures
})
