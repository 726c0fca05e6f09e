/**
 * What containers of an environment reach: real servers and a real engine. Most is asked from within a container's network
 * by programs of this machine, which have a client of Postgres and of Redis.
 */
import { execFile, execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import { promisify } from "node:util"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as leads from "#src/apps/keep-leads.ts"
import * as environments from "#src/apps/services.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { bridgeOf } from "#src/infra/containers/network.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { beside } from "#test/executions/beside.ts"
import {
  base,
  Containers,
  create,
  executionPlane,
  hasPrinted,
  makeProject,
  printed,
  project
} from "#test/executions/world.ts"
import { untilAnswer } from "#test/setup/answers.ts"
import { sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { saying } from "#test/setup/saying.ts"
import { connectionString } from "#test/setup/shown.ts"
import { eventually } from "#test/setup/wait.ts"

const run = promisify(execFile)
const servicesAddress = "198.19.255.1"

/** An execution that answers on port 8080 and stays. Looked at as the process that it is. */
const staying = Effect.fnUntraced(function* (script = "") {
  const { podman } = yield* Containers
  const id = yield* create({
    command: sh(`${script}
      busybox httpd -p 8080 -h /
      echo serving; while :; do busybox sleep 1; done`),
    env: { PATH: "/bin" },
    services: true
  })
  yield* hasPrinted(id, "serving")
  const shown = (format: string) => podman("inspect", "--format", format, `svc-${id}`)
  const pid = shown("{{.State.Pid}}")
  const variables = new Map(
    fs
      .readFileSync(`/proc/${pid}/environ`, "utf8")
      .split("\0")
      .map((entry) => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)] as const)
  )
  return {
    id,
    pid,
    variables,
    address: shown("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"),
    gateway: shown("{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}"),
    ca: fs.readFileSync(`/proc/${pid}/root/etc/svc/ca.pem`, "utf8")
  }
})

/** Those of the places that answer what is in this network. */
const reached = (pid: string, places: ReadonlyArray<string>) =>
  Effect.promise(async () => {
    const script = `import socket, sys, threading
def reach(place):
  try:
    host, port = place.rsplit(":", 1)
    socket.create_connection((host, int(port)), 3).close()
    sys.stdout.write(place + chr(10))
  except OSError: pass
threads = [threading.Thread(target=reach, args=[p]) for p in sys.argv[1:]]
for t in threads: t.start()
for t in threads: t.join()`
    const { stdout } = await run("nsenter", [`--net=/proc/${pid}/ns/net`, "python3", "-c", script, ...places])
    return places.filter((place) => stdout.split("\n").includes(place))
  })
const ofHost = String(process.pid)

/** What servers answer clients in this network that check certificates by the names in the variables. */
const asked = (
  pid: string,
  values: { readonly databaseUrl: string; readonly redisUrl: string; readonly ca: string }
) =>
  Effect.promise(async () => {
    const script = `
      import postgres from "postgres"
      import { createClient } from "redis"
      const { databaseUrl, redisUrl, ca } = JSON.parse(process.env.VALUES)
      const tls = (url) => ({ ca, rejectUnauthorized: true, servername: new URL(url).hostname })
      const at = (url) => Object.assign(new URL(url), { hostname: "${servicesAddress}", search: "" }).href
      const sql = postgres(at(databaseUrl), { ssl: tls(databaseUrl), max: 1, connect_timeout: 60 })
      const [row] = await sql\`select current_user as name, (select count(*)::int from pg_stat_ssl where pid = pg_backend_pid() and ssl) as encrypted\`
      await sql.end()
      const cache = createClient({ url: at(redisUrl), socket: { tls: true, ...tls(redisUrl), reconnectStrategy: false } })
      await cache.connect()
      console.log(JSON.stringify([row.name, row.encrypted, await cache.ping()]))
      cache.destroy()`
    const { stdout } = await run(
      "nsenter",
      [`--net=/proc/${pid}/ns/net`, process.execPath, "--input-type=module", "-e", script],
      { env: { ...process.env, VALUES: JSON.stringify(values) }, timeout: 120_000 }
    )
    return JSON.parse(stdout) as unknown
  })

const makeCache = Effect.fnUntraced(function* (name: string, environment: string) {
  const { call } = yield* Plane
  const made = yield* call("POST", `${project}/caches?environment=${environment}`, {
    body: { name, region: "local", sku: "cache-n1" }
  })
  assert.strictEqual(made.status, 201, made.text)
  const one = `${project}/caches/${made.body.id}`
  const { body } = yield* untilAnswer(call("GET", one), ({ body }) => body.status === "ready")
  return { one, port: Number(body.port) }
})

/** Ports that a container is led to. */
const led = (id: string) =>
  execFileSync("iptables", ["-w", "5", "-t", "nat", "-S", "SVC-SERVICES"], { encoding: "utf8" })
    .split("\n")
    .filter((line) => line.includes(bridgeOf("environment", `svc-${id}`)))
    .map((line) => Number(/--dport (\d+)/.exec(line)?.[1]))
    .sort()

const unlead = (id: string, port: number) =>
  execFileSync("iptables", [
    ...[
      "-w",
      "5",
      "-t",
      "nat",
      "-D",
      "SVC-SERVICES",
      "-i",
      bridgeOf("environment", `svc-${id}`),
      "-p",
      "tcp"
    ],
    ...["--dport", String(port), "-j", "DNAT", "--to-destination", `127.0.0.1:${port}`]
  ])

/** While another process keeps rules as well. */
const nextProcess = <A, E, R>(port: number, self: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const { socket } = yield* Containers
    const one = leads.layer.pipe(
      Layer.provide(environments.layer),
      Layer.provide([CertificateAuthority.layer, Secrets.layer]),
      Layer.provide(beside({ containerSocket: socket, port }))
    )
    yield* Layer.build(one)
    return yield* self
  }).pipe(Effect.scoped)

layer(executionPlane({ graceMs: 500 }), { excludeTestServices: true, timeout: "3 minutes" })(
  "containers of an environment",
  (it) => {
    it.effect(
      "reach their own database, cache and the API by name, and nothing else of this machine, whatever comes and goes",
      () =>
        Effect.gen(function* () {
          const { call, session, databaseUrl, url } = yield* Plane
          yield* makeProject
          yield* call("POST", `${project}/environments`, { body: { slug: "staging" } })
          const made = yield* call("POST", `${project}/database`)
          yield* connectionString(made, `${project}/database/rotate`)
          const database = (yield* call("GET", `${project}/database`)).body
          const own = yield* makeCache("sessions", "production")
          const foreign = yield* makeCache("sessions", "staging")
          const other = yield* staying()

          const app = yield* staying(`
          at=\${DATABASE_URL#*@}; at=\${at%%/*}
          busybox printf '\\0\\0\\0\\10\\4\\322\\26\\57' | busybox nc -w 20 "\${at%:*}" "\${at#*:}" | busybox head -c 1; echo
          busybox wget -q -O - "$SVC_API_URL/v1/ca.pem" | busybox grep BEGIN`)
          // What Postgres answers who asks for TLS, and a file of the API.
          assert.match(yield* printed(app.id), /^S\n-----BEGIN CERTIFICATE-----\nserving\n/)
          const api = Number(new URL(url).port)
          const expected = {
            SVC_ENVIRONMENT: "production",
            SVC_API_URL: `http://services.svc.internal:${api}`,
            REDIS_URL: app.variables.get("REDIS_URL_SESSIONS"),
            NODE_EXTRA_CA_CERTS: "/etc/svc/ca.pem",
            PGSSLROOTCERT: "/etc/svc/ca.pem",
            SVC_CA_FILE: "/etc/svc/ca.pem"
          }
          for (const [name, value] of Object.entries(expected))
            assert.strictEqual(app.variables.get(name), value, name)
          const values = {
            databaseUrl: app.variables.get("DATABASE_URL") ?? "",
            redisUrl: app.variables.get("REDIS_URL") ?? "",
            ca: app.ca
          }
          assert.match(
            values.databaseUrl,
            /^postgres:\/\/app:.+@services\.svc\.internal:\d+\/app\?sslmode=verify-full$/
          )
          assert.deepStrictEqual(yield* asked(app.pid, values), ["app", 1, "PONG"])

          const open = yield* saying("")
          const store = new URL(databaseUrl)
          // Bridges of other containers come and go, and then their addresses are out there.
          const addresses = Object.entries(os.networkInterfaces())
            .flatMap(([name, all]) => (name.startsWith("svc") ? [] : (all ?? [])))
            .flatMap((one) => (one.family === "IPv4" && !one.internal ? [one.address] : []))
          const at = (host: string) => (port: number) => `${host}:${port}`
          const services = [database.port, own.port, api].map(at(servicesAddress))
          const elsewhere = [
            ...[foreign.port, open, Number(store.port)].map(at(servicesAddress)),
            ...[app.gateway, ...addresses].flatMap((host) => [open, api, database.port].map(at(host))),
            `${other.address}:8080`
          ]
          assert.deepStrictEqual(yield* reached(app.pid, [...services, ...elsewhere]), services)
          // All of them answer this machine: it is the rules that hold the container back.
          const here = [
            ...[foreign.port, open, database.port].map(at("127.0.0.1")),
            `${store.hostname}:${store.port}`,
            `${app.gateway}:${open}`,
            `${other.address}:8080`
          ]
          assert.deepStrictEqual(yield* reached(ofHost, here), here)
          // And no labels or arguments hold what the variables do.
          const { podman } = yield* Containers
          const [password = ""] = /(?<=:)[^:@]+(?=@)/.exec(values.databaseUrl) ?? []
          assert.isAbove(password.length, 20)
          for (const part of ["{{json .Config.Labels}}", "{{json .Config.CreateCommand}}", "{{json .Args}}"])
            assert.notInclude(podman("inspect", "--format", part, `svc-${app.id}`), password)

          // A cache that comes later is reached, by the container that runs already; then it goes.
          const later = yield* makeCache("later", "production")
          const latest = at(servicesAddress)(later.port)
          yield* eventually(
            "the later cache is reached",
            reached(app.pid, [latest]),
            ([found]) => found === latest
          )
          assert.strictEqual((yield* call("DELETE", later.one, { token: session })).status, 200)
          yield* eventually(
            "the cache that went is not led to",
            Effect.sync(() => led(app.id)),
            (ports) => !ports.includes(later.port)
          )
          assert.deepStrictEqual(led(app.id), [database.port, own.port, api].sort())

          // Somebody removes rules: they come back, at the latest with the next process.
          for (const port of led(app.id)) unlead(app.id, port)
          assert.deepStrictEqual(led(app.id), [])
          yield* nextProcess(
            api,
            eventually(
              "its services are led to again",
              Effect.sync(() => led(app.id)),
              (ports) => ports.length === 3
            )
          )
          assert.deepStrictEqual(led(app.id), [database.port, own.port, api].sort())

          // A branch of the environment is reached; promoted, its data is at the database's port, and its own is nobody's.
          const branches = `${project}/databases/${database.id}/branches`
          const branch = yield* call("POST", branches, {
            token: session,
            body: {
              name: "copy",
              environment: "production",
              region: "local",
              sku: "db-n1",
              source: { kind: "current" }
            }
          })
          assert.strictEqual(branch.status, 202, branch.text)
          const one = `${branches}/${branch.body.id}`
          const { body: copy } = yield* untilAnswer(
            call("GET", one),
            ({ body }) => body.connectionReady === true
          )
          const copied = at(servicesAddress)(copy.port)
          yield* eventually(
            "the branch is reached",
            reached(app.pid, [copied]),
            ([found]) => found === copied
          )
          yield* untilAnswer(
            call("POST", `${one}/promote`, { token: session }),
            ({ status, body }) => status === 202 || body.code === "already_promoted"
          )
          yield* untilAnswer(call("GET", one), ({ body }) => body.status === "promoted")
          yield* eventually(
            "the branch is not led to",
            Effect.sync(() => led(app.id)),
            (ports) => !ports.includes(copy.port)
          )
          yield* untilAnswer(
            call("GET", `/v1/orgs/main/resources/${database.id}`),
            ({ body }) => body.phase === "ready"
          )
          assert.deepStrictEqual(yield* asked(app.pid, values), ["app", 1, "PONG"])

          for (const { id } of [app, other]) yield* call("POST", `${base}/${id}/cancel`)
          yield* eventually(
            "nothing is left of its rules",
            Effect.sync(() => [...led(app.id), ...led(other.id)]),
            (left) => left.length === 0
          )
        }).pipe(Effect.scoped),
      400_000
    )
  }
)
