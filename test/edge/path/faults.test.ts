/** What an edge makes of trouble: HAProxy killed, its files gone, its agent away, its port taken, no HAProxy at all. */
import { randomUUID } from "node:crypto"
import * as fs from "node:fs"
import * as net from "node:net"
import * as path from "node:path"
import { assert, expect, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { listenerName } from "#src/store/Db.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { storeCertificate, TestEdge, testEdge } from "#test/setup/edge.ts"
import { processesNaming, signal } from "#test/setup/processes.ts"
import { eventually, until } from "#test/setup/wait.ts"
import { anApp, echo, inForce } from "./app.ts"

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

/** What HAProxy answers on its control socket. */
const control = (line: string) =>
  Effect.flatMap(Plane, ({ dataDir }) =>
    Effect.promise(
      () =>
        new Promise<string>((resolve, reject) => {
          const socket = net.connect(path.join(dataDir, "run", "edge.control"))
          let text = ""
          socket.once("error", reject)
          socket.on("data", (chunk: Buffer) => {
            text += chunk
          })
          socket.once("close", () => resolve(text))
          socket.write(`${line}\n`)
        })
    )
  )

/** Whoever is cut off from the store compares everything when it is back. */
const cutOff = Effect.flatMap(Plane, ({ sql }) =>
  sql(`select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name = '${listenerName}'`)
)

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
      const { host } = yield* anApp(echo)
      // Comparisons that earlier tests have brought about may mend it at once.
      yield* eventually(
        "it does not serve",
        Effect.andThen(control(`del map hosts.map ${host}`), statusOf(host)),
        (status) => status === 503
      )
      yield* cutOff
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

  it.effect("goes on after a change of certificates that was begun and not ended", () =>
    Effect.gen(function* () {
      const { dataDir, sql } = yield* Plane
      const loaded = Effect.map(control("show ssl cert"), (text) => text.split("\n"))
      const name = `${randomUUID()}.test`
      const file = `certificates/${name}.pem`
      yield* storeCertificate(name)
      yield* eventually("it is in use", control("show ssl crt-list certificates.list"), (list) =>
        list.includes(`${file} ${name}`)
      )
      const pem = fs.readFileSync(path.join(dataDir, "edge", file), "utf8").trim()
      yield* eventually("a change of it is begun", control(`set ssl cert ${file} <<\n${pem}\n`), (answer) =>
        answer.startsWith("Transaction created")
      )
      // It is taken for another one's, or stands in the way.
      const next = `${randomUUID()}.test`
      yield* storeCertificate(next)
      yield* sql(`delete from edge_certificate where name = '${name}'`)
      yield* cutOff
      yield* eventually(
        "the other one is in use in its place",
        loaded,
        (lines) =>
          lines.includes(`certificates/${next}.pem`) && !lines.some((line) => line.endsWith(`${name}.pem`))
      )
    })
  )

  it.effect("keeps no private key that nobody wants, even one that another process has left", () =>
    Effect.gen(function* () {
      const { dataDir } = yield* Plane
      const folder = path.join(dataDir, "edge", "certificates")
      const left = ["gone.test.pem", "gone.test.pem.1.abc.tmp"].map((name) => path.join(folder, name))
      for (const file of left) fs.writeFileSync(file, "a private key")
      yield* cutOff
      yield* Effect.promise(() => until("they are gone", () => !left.some((file) => fs.existsSync(file))))
      expect(fs.readdirSync(folder)).toContain("_wildcard.apps.localhost.pem")
    })
  )

  it.effect("takes up what is stored while it cannot say so", () =>
    Effect.gen(function* () {
      const { databaseUrl, sql } = yield* Plane
      const { host, uid } = yield* anApp(echo)
      yield* inForce
      const store = postgres(databaseUrl, { max: 1, onnotice: () => undefined })
      yield* Effect.addFinalizer(() => Effect.promise(() => store.end({ timeout: 1 })))
      yield* Effect.promise(async () => {
        await store`begin`
        await store`select from edge_node for update`
      })
      const [asked] = yield* sql(
        "select n::text, pg_notify('svc_edge', 'ask ' || n) from nextval('edge_question') n"
      )
      yield* eventually(
        "the node waits to answer",
        sql(`select 1 from pg_stat_activity where datname = current_database()
          and wait_event_type = 'Lock' and query ilike '%edge_node set answered%'`),
        (rows) => rows.length > 0
      )
      yield* sql(`update edge_site set access = 'invite_only' where environment_uid = '${uid}'`)
      yield* eventually("it is closed all the same", statusOf(host), (status) => status === 401)
      yield* Effect.promise(() => store`rollback`)
      yield* eventually(
        "the question is answered in the end",
        sql(`select 1 from edge_node where answered >= ${asked?.["n"]}`),
        (rows) => rows.length > 0
      )
    })
  )
})
