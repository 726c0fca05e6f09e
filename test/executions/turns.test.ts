/** Whose turn it is to fetch images: no organization holds up another, and what comes to nothing is given up. */
import * as net from "node:net"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { ExecutionOptions } from "#src/executions/options.ts"
import { Pulls } from "#src/executions/Pulls.ts"
import { sweepPulls } from "#src/executions/tidy.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { beside } from "./beside.ts"
import {
  anHourAgo,
  base,
  Containers,
  create,
  ended,
  executionPlane,
  isRunning,
  makeProject,
  read,
  small,
  untilReason
} from "./world.ts"

/** A registry that takes connections and says nothing. */
const silentRegistry = Effect.acquireRelease(
  Effect.promise(
    () =>
      new Promise<{ server: net.Server; sockets: Set<net.Socket> }>((resolve) => {
        const sockets = new Set<net.Socket>()
        const server = net.createServer((socket) => {
          sockets.add(socket)
          socket.on("error", () => {})
        })
        server.listen(0, "127.0.0.1", () => resolve({ server, sockets }))
      })
  ),
  ({ server, sockets }) =>
    Effect.sync(() => {
      for (const socket of sockets) socket.destroy()
      server.close()
    })
).pipe(
  Effect.map(({ server, sockets }) => {
    const at = server.address()
    return { host: `127.0.0.1:${typeof at === "object" && at !== null ? at.port : 0}`, sockets }
  })
)

const patience = 300_000

const slowly = { excludeTestServices: true, timeout: "3 minutes" } as const

/** Both control planes use one engine. */
layer(
  Containers.layer,
  slowly
)((it) => {
  it.layer(executionPlane({ pulls: 2, pullsPerOrg: 1, pullStallMs: 3_600_000 }), slowly)(
    "a registry that says nothing",
    (it) => {
      it.effect(
        "costs nobody the time that is for starting: it counts from the turn, and others have theirs",
        () =>
          Effect.gen(function* () {
            const { call, sql, session } = yield* Plane
            const { openImage } = yield* Containers
            yield* makeProject
            const { host } = yield* silentRegistry
            const slow = yield* create({ image: `${host}/x/y:1`, command: sh("exit 0") })
            const of = (id: string) =>
              Effect.map(
                sql(`select status, turn_at is not null as turn from execution where uid = '${id}'`),
                ([row]) => row
              )
            const until = (id: string, holds: (row: Record<string, unknown>) => boolean) =>
              eventually("the execution has come so far", of(id), (row) => row !== undefined && holds(row))
            yield* until(slow, ({ turn }) => turn === true)
            // Of the same organization: it waits for its turn, longer than starting may take.
            const next = yield* create({ command: sh("exit 0") })
            yield* anHourAgo(next, "begun_at")
            // Another organization does not.
            const other = yield* call("POST", "/v1/orgs", {
              body: { name: "Other", slug: "other" },
              token: session
            })
            assert.isBelow(other.status, 300, other.text)
            yield* call("POST", "/v1/orgs/other/projects", {
              body: { name: "Jobs", slug: "jobs" },
              token: session
            })
            const theirs = yield* call("POST", base.replace("/main/", "/other/"), {
              body: { image: openImage, command: sh("exit 0"), region: "local", resources: small },
              token: session
            })
            assert.strictEqual(theirs.status, 202, theirs.text)
            yield* until(theirs.body.id, ({ status }) => status === "succeeded")
            assert.deepStrictEqual(yield* of(slow), { status: "starting", turn: true })
            assert.deepStrictEqual(yield* of(next), { status: "starting", turn: false })
            yield* anHourAgo(slow, "turn_at")
            const failed = yield* ended(slow)
            assert.deepStrictEqual([failed.status, failed.errorCode], ["failed", "image_pull_failed"])
            assert.include(failed.error, "did not begin within 600 s")
            assert.strictEqual((yield* ended(next)).status, "succeeded")
          }),
        patience
      )

      it.effect("is called off where nobody waits for it any more, because another process went on", () =>
        Effect.gen(function* () {
          const { call, sql } = yield* Plane
          const { socket } = yield* Containers
          const { host } = yield* silentRegistry
          const id = yield* create({ command: sh("exit 0") })
          yield* call("POST", `${base}/${id}/cancel`)
          yield* ended(id)
          const [row] = yield* sql(`select org_id from execution where uid = '${id}'`)
          const orgId = String(row?.["org_id"])
          const waiting = yield* create({ image: `${host}/x/y:1`, command: sh("exit 0") })
          yield* Effect.gen(function* () {
            const pulls = yield* Pulls
            for (const uid of [id, waiting])
              yield* pulls.start({ orgId, uid }, { reference: `${host}/x/y:1`, credentials: undefined })
            assert.isDefined(pulls.look(id))
            const known = sql(`select 1 from execution where uid = '${waiting}'`)
            yield* eventually("it is known", known, (rows) => rows.length > 0)
            assert.strictEqual(yield* sweepPulls, 1)
            assert.isUndefined(pulls.look(id))
            assert.isDefined(pulls.look(waiting))
          }).pipe(Effect.provide(beside({ containerSocket: socket, outboundAllow: ["127.0.0.0/8"] })))
        })
      )
    }
  )

  it.layer(
    executionPlane({ pullStallMs: 3_000, graceMs: 500 }, () => ({ SVC_EXECUTION_MEMORY_MB: "100" })),
    slowly
  )("a small host", (it) => {
    it.effect(
      "has its memory waited for by what finds no room, which says so, and runs once there is; not by a cancelled one",
      () =>
        Effect.gen(function* () {
          const { call } = yield* Plane
          yield* makeProject
          const loop = { command: sh("while :; do busybox sleep 0.2; done"), env: { PATH: "/bin" } }
          const first = yield* create(loop)
          yield* isRunning(first)
          const second = yield* create({ command: sh("exit 0") })
          const third = yield* create({ command: sh("exit 0") })
          const told = yield* untilReason(second, "WaitingForRoom")
          assert.include(String(told["message"]), "100 MB")
          assert.strictEqual((yield* read(second)).body.status, "starting")
          yield* call("POST", `${base}/${third}/cancel`)
          assert.strictEqual((yield* ended(third)).status, "cancelled")
          yield* call("POST", `${base}/${first}/cancel`)
          assert.strictEqual((yield* ended(second)).status, "succeeded")
        }),
      patience
    )

    campaign(
      it.effect,
      "fetching-halts",
      "an execution gives up fetching that comes to a halt, long before the time for starting is over, and lets go of the registry",
      { rounds: 0, roundMs: patience },
      () =>
        Effect.gen(function* () {
          yield* makeProject
          assert.isAbove((yield* ExecutionOptions).startupMs, 120_000)
          const { host, sockets } = yield* silentRegistry
          const id = yield* create({ image: `${host}/x/y:1`, command: sh("exit 0") })
          const over = yield* ended(id)
          assert.deepStrictEqual([over.status, over.errorCode], ["failed", "image_pull_failed"])
          assert.include(over.error, "nothing came for 3 s")
          assert.isAtLeast(sockets.size, 1)
        })
    )
  })
})
