/** What an edge makes of trouble: HAProxy killed, its files gone, its agent away, its port taken, no HAProxy at all. */
import * as fs from "node:fs"
import * as net from "node:net"
import * as path from "node:path"
import { assert, expect, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { TestEdge, testEdge } from "#test/setup/edge.ts"
import { processesNaming, signal } from "#test/setup/processes.ts"
import { eventually, until } from "#test/setup/wait.ts"
import { anApp, echo } from "./app.ts"

const haproxies = (dataDir: string) =>
  processesNaming(`${dataDir}/edge/haproxy.cfg`)
    .map(({ pid }) => pid)
    .sort((a, b) => a - b)

const statusOf = (host: string) =>
  Effect.gen(function* () {
    const { request } = yield* TestEdge
    return yield* Effect.catchCause(
      Effect.map(request(host, "/"), ({ status }) => status),
      () => Effect.succeed(0)
    )
  })

const perAddress = 24

layer(testEdge({}, { SVC_EDGE_ADDRESS_CONNECTIONS: String(perAddress) }), {
  excludeTestServices: true,
  timeout: "2 minutes"
})("an edge in trouble", (it) => {
  it.effect("starts HAProxy again when its worker or its master is killed, with all that it served", () =>
    Effect.gen(function* () {
      const { dataDir } = yield* Plane
      const { host } = yield* anApp(echo)
      for (const which of ["worker", "master"] as const) {
        const before = haproxies(dataDir)
        const victim = which === "master" ? before[0] : before.at(-1)
        assert(victim !== undefined)
        signal(victim, "SIGKILL")
        yield* eventually(
          "another HAProxy is there",
          Effect.sync(() => haproxies(dataDir)),
          (now) => now.length === 2 && now.every((pid) => !before.includes(pid))
        )
        yield* eventually(
          `it serves after its ${which} was killed`,
          statusOf(host),
          (status) => status === 200
        )
      }
    })
  )

  it.effect("is whole again after its files were deleted, with HAProxy killed and without", () =>
    Effect.gen(function* () {
      const { dataDir } = yield* Plane
      const { host } = yield* anApp(echo)
      const folder = path.join(dataDir, "edge")
      const isWhole = () =>
        ["hosts.map", "sites.map", "haproxy.cfg", "certificates/_wildcard.apps.localhost.pem"].every((name) =>
          fs.existsSync(path.join(folder, name))
        ) && fs.readFileSync(path.join(folder, "hosts.map"), "utf8").includes(host)
      fs.rmSync(folder, { recursive: true })
      yield* Effect.promise(() => until("the files are back", isWhole))
      expect(yield* statusOf(host)).toBe(200)
      fs.rmSync(folder, { recursive: true })
      for (const pid of haproxies(dataDir)) signal(pid, "SIGKILL")
      yield* Effect.promise(() => until("the files are back", isWhole))
      yield* eventually("it serves", statusOf(host), (status) => status === 200)
    })
  )

  it.effect("mends what somebody changed in HAProxy, and takes up what was notified while it was away", () =>
    Effect.gen(function* () {
      const { dataDir, sql } = yield* Plane
      const { host } = yield* anApp(echo)
      const control = (line: string) =>
        Effect.promise(
          () =>
            new Promise<void>((resolve, reject) => {
              const socket = net.connect(path.join(dataDir, "run", "edge.control"))
              socket.once("error", reject)
              socket.once("close", () => resolve())
              socket.resume()
              socket.write(`${line}\n`)
            })
        )
      yield* control(`del map hosts.map ${host}`)
      expect(yield* statusOf(host)).toBe(503)
      // Whoever is cut off from the store compares everything when it is back.
      yield* sql(`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and query ilike 'listen%svc_edge%' and pid <> pg_backend_pid()`)
      yield* eventually("it serves again", statusOf(host), (status) => status === 200)
    })
  )

  it.effect("takes so many connections from one address, also such as say nothing", () =>
    Effect.gen(function* () {
      const { httpsPort } = yield* TestEdge
      const { host } = yield* anApp(echo)
      const silent = yield* Effect.acquireRelease(
        Effect.sync(() => Array.from({ length: perAddress + 1 }, () => net.connect(httpsPort, "127.0.0.1"))),
        (sockets) => Effect.sync(() => sockets.forEach((socket) => void socket.destroy()))
      )
      for (const socket of silent) socket.on("error", () => {})
      yield* Effect.promise(() => until("one is too many", () => silent.some(({ closed }) => closed)))
      expect(yield* statusOf(host)).toBe(0)
      for (const socket of silent) socket.destroy()
      yield* eventually("others come in again", statusOf(host), (status) => status === 200)
    }).pipe(Effect.scoped)
  )

  it.effect(
    "gives a site that was lost its address again, and serves nothing of a project that was deleted",
    () =>
      Effect.gen(function* () {
        const { call, session, sql } = yield* Plane
        const { host, uid, org, project } = yield* anApp(echo)
        yield* sql(`delete from edge_site where environment_uid = '${uid}'`)
        yield* eventually("nothing is served", statusOf(host), (status) => status === 404)
        expect((yield* call("POST", `/v1/orgs/${org}/resources/${uid}/retry`)).status).toBe(202)
        yield* eventually("it serves again", statusOf(host), (status) => status === 200)
        const deleted = yield* call("DELETE", `/v1/orgs/${org}/projects/${project.id}`, { token: session })
        expect(deleted.status, deleted.text).toBeLessThan(300)
        yield* eventually("nothing is served", statusOf(host), (status) => status === 404)
        expect(yield* sql(`select 1 from edge_host where hostname = '${host}'`)).toEqual([])
      })
  )
})
