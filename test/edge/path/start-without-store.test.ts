/** A machine that starts anew: its HAProxy is gone, its files are there, and its state store cannot be had. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { TestEdge } from "#test/setup/edge.ts"
import { edgeMachine } from "#test/setup/edge-process.ts"
import { freePort } from "#test/setup/postgres.ts"
import { killNaming } from "#test/setup/processes.ts"
import { eventually } from "#test/setup/wait.ts"
import { anApp, echo } from "./app.ts"

layer(testPlane(), { excludeTestServices: true, timeout: "2 minutes" })("an edge without a store", (it) => {
  it.effect("serves what it served last, and then what the store says", () =>
    Effect.gen(function* () {
      const { databaseUrl, sql } = yield* Plane
      const machine = yield* edgeMachine
      const nowhere = `postgres://127.0.0.1:${yield* Effect.promise(freePort)}/none`
      const running = () => killNaming(`${machine.dataDir}/edge/haproxy.cfg`)

      // A folder that never was an edge's: there is nothing to serve.
      assert.isTrue(Exit.isFailure(yield* Effect.exit(machine.start(nowhere))))
      assert.strictEqual(running(), 0)

      const before = yield* machine.start(databaseUrl)
      yield* machine.listens
      yield* Effect.gen(function* () {
        const { request } = yield* TestEdge
        const { host, uid } = yield* anApp(echo)
        const status = Effect.catchCause(
          Effect.map(request(host, "/"), (answer) => answer.status),
          () => Effect.succeed(0)
        )
        yield* eventually(
          "its files have the app",
          Effect.sync(() => fs.readFileSync(path.join(machine.dataDir, "edge", "sites.map"), "utf8")),
          (sites) => sites.split("\n").some((line) => line.includes(uid) && line.includes("127.0.0.1|"))
        )
        yield* before.stop
        assert.strictEqual(yield* status, 200, "HAProxy goes on by itself")
        assert.isAbove(running(), 0)
        yield* eventually("nothing is served", status, (seen) => seen === 0)

        // It does not start, and does not end what it has begun with.
        assert.isTrue(Exit.isFailure(yield* Effect.exit(machine.start(nowhere))))
        yield* eventually("what it served is served", status, (seen) => seen === 200)
        assert.strictEqual((yield* request(host, "/meanwhile")).status, 200)

        yield* sql(`update edge_site set access = 'invite_only' where environment_uid = '${uid}'`)
        yield* machine.start(databaseUrl)
        yield* eventually("it is closed as the store says", status, (seen) => seen === 401)
        yield* eventually(
          "what was asked for before that is in the log",
          sql("select 1 from edge_request where path = '/meanwhile'"),
          (rows) => rows.length === 1
        )
      }).pipe(Effect.provide(machine.client))
    })
  )
})
