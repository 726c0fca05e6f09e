import { spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { makeServerDeaths } from "#src/infra/host/server-exits.ts"
import { pidName } from "#src/infra/redis/settings.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { processesNaming, sweep } from "#test/setup/processes.ts"
import { until } from "#test/setup/wait.ts"

const world = Effect.acquireRelease(
  Effect.sync(() => {
    const dataDir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
    fs.writeFileSync(path.join(dataDir, "wait"), "")
    return {
      dataDir,
      /** A server whose pid file names this process. */
      server: (pid: number) => {
        const uid = uuid()
        const folder = path.join(dataDir, "caches", uid)
        fs.mkdirSync(folder, { recursive: true })
        fs.writeFileSync(path.join(folder, pidName), `${pid}\n`)
        return uid
      }
    }
  }),
  ({ dataDir }) => Effect.promise(() => sweep(dataDir))
)

/** Runs a script in which the folder is named, so that it ends with the world; answers the number that it says. */
const start = (dataDir: string, script: string) =>
  Effect.promise(
    () =>
      new Promise<number>((resolve, reject) => {
        const child = spawn("/bin/sh", ["-c", script, dataDir], { stdio: ["ignore", "pipe", "ignore"] })
        child.once("error", reject)
        child.stdout.once("data", (line: Buffer) => resolve(Number(line.toString())))
      })
  )

it.live("an end is told once, whether it came between two looks or before the first", () =>
  Effect.gen(function* () {
    const { dataDir, server } = yield* world
    const [living, dying] = [
      server(process.pid),
      server(yield* start(dataDir, "echo $$; exec tail -f $0/wait"))
    ]
    // No process has a number like this.
    const dead = server(2 ** 30)
    yield* Effect.promise(() =>
      until("it runs", () => processesNaming(dataDir).some(({ line }) => line.startsWith("tail")))
    )
    const look = makeServerDeaths(dataDir)
    assert.deepStrictEqual(yield* look, [dead])
    assert.deepStrictEqual(yield* look, [])
    for (const { pid } of processesNaming(dataDir)) process.kill(pid, "SIGKILL")
    yield* Effect.promise(() => until("it has ended", () => processesNaming(dataDir).length === 0))
    assert.deepStrictEqual(yield* look, [dying])
    assert.deepStrictEqual(yield* look, [])
    assert.notInclude(yield* makeServerDeaths(dataDir), living)
  }).pipe(Effect.scoped)
)

it.live("a process that the kernel ended is told once, though its server goes on", () =>
  Effect.gen(function* () {
    const { dataDir, server } = yield* world
    const uid = server(process.pid)
    const counts = new Map<string, number>()
    const look = makeServerDeaths(
      dataDir,
      Effect.sync(() => new Map(counts))
    )
    assert.deepStrictEqual(yield* look, [])
    counts.set(`${uid}-1`, 1)
    assert.deepStrictEqual(yield* look, [uid], "of a standby its database is looked at")
    assert.deepStrictEqual(yield* look, [])
    counts.set(`${uid}-1`, 3)
    assert.deepStrictEqual(yield* look, [uid])
    counts.set(`${uid}-1`, 0)
    assert.deepStrictEqual(yield* look, [], "the machine was started anew")
  }).pipe(Effect.scoped)
)

it.live.skipIf(process.platform !== "linux")("a server whose exit nobody reads has ended all the same", () =>
  Effect.gen(function* () {
    const { dataDir, server } = yield* world
    // What takes the place of the shell knows nothing of the child that the shell began. It does so before the child ends.
    const pid = yield* start(dataDir, "tail -f $0/wait & echo $!; exec tail -f $0/wait")
    const tails = () => processesNaming(dataDir).filter(({ line }) => line.startsWith("tail"))
    yield* Effect.promise(() => until("both run", () => tails().length === 2))
    process.kill(pid, "SIGKILL")
    yield* Effect.promise(() =>
      until("it is dead and listed", () => /^\d+ \(.*\) Z/.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8")))
    )
    const uid = server(pid)
    assert.deepStrictEqual(yield* makeServerDeaths(dataDir), [uid])
  }).pipe(Effect.scoped)
)
