/**
 * Base backups of 100 MB and 1 GB (`BENCH_MB=100,1000,5000` chooses the sizes) into the local repository, held against `cp -a` of the
 * same folder in the same run, with the memory that the process takes; and what archiving costs a database that
 * pgbench writes to, held against the same database whose segments go nowhere.
 */
import { execFile } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { promisify } from "node:util"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { appDatabase, controlUser } from "#src/infra/postgres/settings.ts"
import { migrate } from "#src/store/migrate.ts"
import { type BackupWorld, connect, onStore, portOf, readyDatabase, startLoops } from "#test/backups/world.ts"
import { type DatabaseResource, folderOf } from "#test/setup/databases.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { processesNaming } from "#test/setup/processes.ts"
import { type Figure, median, spread } from "./figures.ts"

const run = promisify(execFile)

/** A large backup takes longer than anything that tests wait for. */
const until = <A, E>(what: string, look: Effect.Effect<A | undefined | false, E>, seconds: number) =>
  Effect.gen(function* () {
    for (;;) {
      const found = yield* look
      if (found !== undefined && found !== false) return found
      yield* Effect.sleep("50 millis")
    }
  }).pipe(
    Effect.timeoutOrElse({
      duration: `${seconds} seconds`,
      orElse: () => Effect.die(new Error(`never: ${what}`))
    })
  )
const sizes = (process.env["BENCH_MB"] ?? "100,1000").split(",").map(Number)
const pgbench = "/usr/lib/postgresql/15/bin/pgbench"
const rounds = 5
/** Of `pgbench`, with archiving and without. */
const pairs = 10
const seconds = 8

const fill = async (world: BackupWorld, database: DatabaseResource, megabytes: number) => {
  const sql = connect(world, portOf(world, database))
  await sql.unsafe(`drop table if exists big`)
  // About two to one for a compressor, as text of people is.
  await sql.unsafe(
    `create table big as select n, md5(n::text) || md5((n * 7)::text) || repeat(md5(n::text), 2) as text
     from generate_series(1, ${Math.round((megabytes * 1e6) / 170)}) n`
  )
  await sql`checkpoint`
  await sql.end()
}

/** Highest resident set of this process while something runs. */
const watchingMemory = async <A>(body: () => Promise<A>): Promise<readonly [A, number]> => {
  let most = process.memoryUsage.rss()
  const timer = setInterval(() => {
    most = Math.max(most, process.memoryUsage.rss())
  }, 50)
  try {
    return [await body(), most]
  } finally {
    clearInterval(timer)
  }
}

/** What an earlier load left to archive is not the next figure's to pay. */
const allShipped = (world: BackupWorld, database: DatabaseResource) =>
  until(
    "the log is in the repository",
    Effect.sync(() => {
      const [spool, status] = ["archive", "data/pg_wal/archive_status"].map((name) =>
        fs.readdirSync(path.join(folderOf(world, database), name))
      )
      return spool?.length === 0 && !status?.some((name) => name.endsWith(".ready"))
    }),
    300
  )

const oneBackup = (world: BackupWorld, database: DatabaseResource) =>
  Effect.scoped(
    Effect.gen(function* () {
      const loops = yield* startLoops(world, { backupEveryMs: 1e15 })
      yield* allShipped(world, database)
      yield* until(
        "nothing else is under way",
        Effect.map(
          onStore(world, "select from backup_job where finished_at is null"),
          (rows) => rows.length === 0
        ),
        300
      )
      yield* onStore(world, "delete from backup_job")
      const job = yield* until(
        "the backup",
        Effect.map(
          onStore(
            world,
            `select extract(epoch from finished_at - started_at)::float8 as seconds, bytes_total::float8 as bytes,
               stored_bytes::float8 as stored, status, error
             from backup_job where database_uid = '${database.uid}' and finished_at is not null`
          ),
          ([row]) => row
        ),
        900
      )
      yield* loops.stop
      if (job["status"] !== "succeeded") throw new Error(String(job["error"]))
      return { seconds: Number(job["seconds"]), bytes: Number(job["bytes"]), stored: Number(job["stored"]) }
    })
  )

const copyTime = async (world: BackupWorld, database: DatabaseResource) => {
  const target = path.join(world.dataDir, "copy")
  const begun = performance.now()
  await run("cp", ["-a", path.join(folderOf(world, database), "data"), target])
  await run("sync", ["-f", target])
  const took = (performance.now() - begun) / 1000
  fs.rmSync(target, { recursive: true })
  return took
}

const transactions = async (world: BackupWorld, database: DatabaseResource) => {
  const { stdout } = await run(pgbench, [
    ...["-h", path.join(world.dataDir, "run"), "-p", String(portOf(world, database)), "-U", controlUser],
    ...["-n", "-c", "4", "-j", "1", "-T", String(seconds), appDatabase]
  ])
  return Number(/tps = ([\d.]+)/.exec(stdout)?.[1])
}

const archivingCost = async (world: BackupWorld, database: DatabaseResource) => {
  await run(pgbench, [
    ...["-h", path.join(world.dataDir, "run"), "-p", String(portOf(world, database)), "-U", controlUser],
    ...["-i", "-q", "-s", "20", appDatabase]
  ])
  const settings = async (...texts: ReadonlyArray<string>) => {
    const sql = connect(world, portOf(world, database))
    for (const text of texts) await sql.unsafe(text)
    await sql.end()
  }
  await Effect.runPromise(
    Effect.scoped(Effect.andThen(startLoops(world, { backupEveryMs: 1e15 }), allShipped(world, database)))
  )
  const withArchiving = async () => {
    await settings("alter system reset archive_command", "select pg_reload_conf()", "checkpoint")
    const before = process.cpuUsage()
    const rate = await Effect.runPromise(
      Effect.scoped(
        Effect.andThen(
          startLoops(world, { backupEveryMs: 1e15 }),
          Effect.promise(() => transactions(world, database))
        )
      )
    )
    const { user, system } = process.cpuUsage(before)
    return { rate, cpu: (user + system) / 1e6 / seconds }
  }
  const without = async () => {
    await settings("alter system set archive_command = '/bin/true'", "select pg_reload_conf()", "checkpoint")
    return transactions(world, database)
  }
  const measured: Array<{ readonly on: number; readonly off: number; readonly cpu: number }> = []
  for (let pair = 0; pair < pairs; pair++) {
    // To and fro, so that a machine that gets slower or faster meanwhile favours neither.
    const before = pair % 2 === 0 ? await without() : undefined
    const { rate, cpu } = await withArchiving()
    measured.push({ on: rate, off: before ?? (await without()), cpu })
  }
  return measured
}

export const backups = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-bench-"))
  const storeUrl = Redacted.make(url)
  const store = postgres(url, { max: 1, onnotice: () => {} })
  const world: BackupWorld = {
    dataDir,
    storeUrl,
    store,
    secrets: memorySecrets(),
    destinations: new Map(),
    databases: new Map()
  }
  const figures: Array<Figure> = []
  try {
    await Effect.runPromise(migrate(storeUrl))
    const database = await Effect.runPromise(readyDatabase(world))
    const idle = process.memoryUsage.rss()
    for (const megabytes of sizes) {
      await fill(world, database, megabytes)
      const made: Array<Awaited<ReturnType<typeof round>>> = []
      const round = async () => {
        const copied = await copyTime(world, database)
        const [backup, memory] = await watchingMemory(() => Effect.runPromise(oneBackup(world, database)))
        return {
          ...backup,
          memory,
          share: copied / backup.seconds,
          rate: backup.bytes / 1e6 / backup.seconds
        }
      }
      for (let i = 0; i < rounds; i++) made.push(await round())
      const shares = made.map(({ share }) => share)
      const [last] = made
      if (last === undefined) continue
      const size = `${Math.round(last.bytes / 1e6)} MB`
      figures.push(
        {
          name: `base backup of ${size} to cp -a and sync`,
          value: median(shares),
          unit: "x",
          aim: ">= 0.5",
          note: `${spread(shares)}; ${Math.round(median(made.map(({ rate }) => rate)))} MB/s, stored ${Math.round(last.stored / 1e6)} MB`
        },
        {
          name: `memory at most during ${size}`,
          value: Math.max(...made.map(({ memory }) => memory)) / 1e6,
          unit: "MB",
          note: `${Math.round(idle / 1e6)} MB before`
        }
      )
    }
    const measured = await archivingCost(world, database)
    const costs = measured.map(({ on, off }) => 100 * (1 - on / off))
    figures.push({
      name: "archiving's cost on pgbench",
      value: median(costs),
      unit: "%",
      aim: "< 5",
      note: `${spread(costs)}; ${Math.round(median(measured.map(({ on }) => on)))} transactions/s, archived nowhere ${Math.round(median(measured.map(({ off }) => off)))}; the control plane took ${(100 * median(measured.map(({ cpu }) => cpu))).toFixed(1)} % of a processor`
    })
    return figures
  } finally {
    for (const { pid } of processesNaming(dataDir)) {
      try {
        process.kill(pid, "SIGKILL")
      } catch {
        // Children of a server that was just killed end by themselves.
      }
    }
    await store.end({ timeout: 1 })
    fs.rmSync(dataDir, { recursive: true, force: true, maxRetries: 20 })
  }
}
