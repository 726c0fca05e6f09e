/** An edge whose disk is full: a file system of its own, as only root can make one. */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { handshakes, storeCertificate, TestEdge } from "#test/setup/edge.ts"
import { edgeMachine } from "#test/setup/edge-process.ts"
import { killNaming } from "#test/setup/processes.ts"
import { eventually } from "#test/setup/wait.ts"
import { anApp, echo, inForce } from "./app.ts"

/** Answers a function that takes all of its room, and one that gives it back. */
const smallDisk = Effect.fnUntraced(function* (folder: string) {
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      fs.mkdirSync(folder, { recursive: true })
      spawnSync("mount", ["-t", "tmpfs", "-o", "size=512k", "tmpfs", folder])
    }),
    () => Effect.sync(() => spawnSync("umount", ["-l", folder]))
  )
  const filler = path.join(folder, "filler")
  return {
    isMounted: fs.statfsSync(folder).blocks * fs.statfsSync(folder).bsize <= 1 << 20,
    fill: Effect.sync(() => {
      const file = fs.openSync(filler, "w")
      assert.throws(() => {
        for (;;) fs.writeSync(file, Buffer.alloc(4096))
      }, /ENOSPC/)
      fs.closeSync(file)
    }),
    empty: Effect.sync(() => fs.rmSync(filler))
  }
})

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })(
  "an edge whose disk is full",
  (it) => {
    it.effect("takes up changes all the same, and writes them down once it can", (test) =>
      Effect.gen(function* () {
        const { databaseUrl, sql } = yield* Plane
        const machine = yield* edgeMachine
        const folder = path.join(machine.dataDir, "edge")
        const disk = yield* smallDisk(folder)
        if (!disk.isMounted) return test.skip("no file system can be mounted here")
        const edge = yield* machine.start(databaseUrl)
        yield* machine.listens
        yield* Effect.gen(function* () {
          const { request, tlsTo } = yield* TestEdge
          const { host, uid } = yield* anApp(echo)
          const status = Effect.catchCause(
            Effect.map(request(host, "/"), (answer) => answer.status),
            () => Effect.succeed(0)
          )
          const access = (mode: string) =>
            sql(`update edge_site set access = '${mode}' where environment_uid = '${uid}'`)
          const stored = (text: string) =>
            eventually(
              `the files say ${text}`,
              Effect.sync(() => fs.readFileSync(path.join(folder, "sites.map"), "utf8").includes(text))
            )
          yield* inForce
          yield* stored(`${uid} public`)

          yield* disk.fill
          yield* access("invite_only")
          yield* eventually("it is closed", status, (seen) => seen === 401)
          yield* storeCertificate("new.test")
          yield* access("public")
          yield* inForce
          assert.strictEqual(yield* status, 200)

          // What it serves outlives its process, and HAProxy starts with what was written before.
          yield* edge.stop
          yield* machine.start(databaseUrl)
          yield* access("invite_only")
          yield* eventually("the next process took it over", status, (seen) => seen === 401)
          yield* access("public")
          yield* eventually("it is open", status, (seen) => seen === 200)
          assert.isAbove(killNaming(`${folder}/haproxy.cfg`), 0)
          yield* eventually("it serves again", status, (seen) => seen === 200)
          assert.deepEqual(
            fs.readdirSync(folder).filter((name) => name.endsWith(".tmp")),
            []
          )

          yield* disk.empty
          yield* eventually(
            "the new certificate is served",
            Effect.promise(() => handshakes(tlsTo("new.test")))
          )
          yield* access("organization")
          yield* stored(`${uid} organization`)
        }).pipe(Effect.provide(machine.client))
      })
    )
  }
)
