/** Servers that were killed and still take connections for a moment: who looks at them waits for their end. */
import * as fs from "node:fs"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { readInfo } from "#src/infra/haproxy/control.ts"
import { makeProcesses } from "#src/infra/postgres/process.ts"

/** Takes connections on a socket of its own, cuts the first of them, and answers the others as HAProxy does. */
const cutting = Effect.fnUntraced(function* (name: string, cuts: number) {
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
    (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true }))
  )
  let taken = 0
  const server = net.createServer((connection) => {
    connection.on("error", () => undefined)
    if (++taken <= cuts) connection.destroy()
    else connection.once("data", () => connection.end("Pid: 4321\n\n"))
  })
  const socket = path.join(folder, name)
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.listen(socket, () => resume(Effect.void))
    }),
    () => Effect.sync(() => server.close())
  )
  return { folder, socket, taken: () => taken }
})

it.live("of HAProxy, whose next process answers", () =>
  Effect.gen(function* () {
    const { socket, taken } = yield* cutting("control", 3)
    assert.deepStrictEqual(yield* readInfo(socket), { pid: 4321 })
    assert.strictEqual(taken(), 4)
  })
)

it.live("of Postgres, which is found stopped", () =>
  Effect.gen(function* () {
    const port = 5432
    const { folder, taken } = yield* cutting(`.s.PGSQL.${port}`, Number.POSITIVE_INFINITY)
    const { processOf } = makeProcesses(
      {
        socketDir: folder,
        readFile: () => Effect.succeed(Option.some("4321\n")),
        // Its command line is gone when it has ended.
        isRunning: () => Effect.sync(() => taken() < 3),
        kill: () => Effect.die("nobody ends it")
      },
      () => folder
    )
    assert.deepStrictEqual(yield* processOf("some-uid", port), { _tag: "Stopped" })
    assert.isAtLeast(taken(), 3)
  })
)
