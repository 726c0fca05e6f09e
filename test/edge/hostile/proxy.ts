/**
 * HAProxy with the edge's own configuration and maps that a test writes, and neither agent nor store: what a visitor can
 * do to it, and what an app behind it sees, byte by byte.
 */
import { spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import * as http from "node:http"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import { createInterface } from "node:readline"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { files, haproxyConfig } from "#src/edge/haproxy-config.ts"
import { type LoggedRequest, parseLine } from "#src/edge/requests/log-format.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { freePort, managedPorts } from "#test/setup/postgres.ts"
import { until } from "#test/setup/wait.ts"

export interface Site {
  readonly host: string
  readonly environment: string
  readonly access?: string
  /** Of the app, on this machine; undefined: the agent answers. */
  readonly port?: number
}

export interface RawRequest {
  readonly head: string
  readonly body: string
}

/** The requests that these bytes are, and what is left over: read as strictly as RFC 9112 allows. */
export const requestsIn = (
  bytes: string
): { readonly requests: ReadonlyArray<RawRequest>; readonly rest: string } => {
  const requests: Array<RawRequest> = []
  let rest = bytes
  for (;;) {
    const end = rest.indexOf("\r\n\r\n")
    if (end === -1) return { requests, rest }
    const head = rest.slice(0, end)
    const after = rest.slice(end + 4)
    const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0)
    const body = /\r\ntransfer-encoding: *chunked/i.test(head)
      ? chunks.exec(after)?.[0]
      : after.slice(0, length)
    if (body === undefined || body.length < length) return { requests, rest }
    requests.push({ head, body })
    rest = after.slice(body.length)
  }
}
const chunks = /^(?:[1-9a-f][0-9a-f]*\r\n[\s\S]*?\r\n)*?0\r\n(?:[^\r\n]+\r\n)*\r\n/i

/** Answers each request that is whole with its own head, and keeps the bytes of each connection. */
export const rawApp = Effect.acquireRelease(
  Effect.promise(async () => {
    const connections: Array<{ bytes: string }> = []
    const server = net.createServer((socket) => {
      const connection = { bytes: "" }
      connections.push(connection)
      let answered = 0
      socket.on("error", () => {})
      socket.on("data", (data: Buffer) => {
        connection.bytes += data.toString("latin1")
        const { requests } = requestsIn(connection.bytes)
        for (const { head } of requests.slice(answered))
          socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${head.length}\r\n\r\n${head}`, "latin1")
        answered = requests.length
      })
    })
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
    const address = server.address()
    return { server, connections, port: typeof address === "object" ? (address?.port ?? 0) : 0 }
  }),
  ({ server }) => Effect.sync(() => void server.close())
)

export interface RunningProxy {
  readonly httpsPort: number
  readonly httpPort: number
  readonly caPem: string
  /** Requests that reached the agent: method, host and path. */
  readonly agent: Array<string>
  /** Lines of the log, as the edge reads them. */
  readonly logged: Array<LoggedRequest>
  readonly dir: string
  /** Process of the worker. */
  readonly pid: number
}

export const ticketKey = randomBytes(32).toString("hex")

const authority = CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))

export const startProxy = (
  sites: ReadonlyArray<Site>,
  {
    headerSeconds = 10,
    moreCertificates = 0,
    agentPort = managedPorts.last,
    proxyProtocolFrom = [],
    trustedProxies = []
  }: {
    readonly headerSeconds?: number
    readonly moreCertificates?: number
    readonly agentPort?: number
    readonly proxyProtocolFrom?: ReadonlyArray<string>
    readonly trustedProxies?: ReadonlyArray<string>
  } = {}
) =>
  Effect.gen(function* () {
    const { issue, caPem } = yield* CertificateAuthority
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "svc-edge-"))
    yield* Effect.addFinalizer(() => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true })))
    const [httpsPort, httpPort] = yield* Effect.promise(() => Promise.all([freePort(), freePort()]))
    const agent: Array<string> = []
    const logged: Array<LoggedRequest> = []
    yield* serve(
      http.createServer((request, response) => {
        agent.push(`${request.method} ${request.headers.host} ${request.url}`)
        response.writeHead(404).end("agent")
      }),
      agentPort
    )
    const logPort = yield* Effect.promise(() => freePort())
    yield* Effect.acquireRelease(
      Effect.promise(
        () =>
          new Promise<{ readonly server: net.Server; readonly open: Set<net.Socket> }>((resolve) => {
            const open = new Set<net.Socket>()
            const server = net.createServer((socket) => {
              open.add(socket)
              socket.on("error", () => {})
              createInterface(socket.setEncoding("latin1")).on("line", (line) => {
                const { request } = Option.getOrThrow(parseLine(line))
                if (Option.isSome(request)) logged.push(request.value)
              })
            })
            server.listen(logPort, "127.0.0.1", () => resolve({ server, open }))
          })
      ),
      ({ server, open }) =>
        Effect.sync(() => {
          server.close()
          for (const socket of open) socket.destroy()
        })
    )

    fs.mkdirSync(path.join(dir, files.certificateDir))
    const write = (name: string, text: string) =>
      fs.writeFileSync(path.join(dir, name), text, { mode: 0o600 })
    const { certificatePem, privateKeyPem } = yield* issue({ hosts: ["*.apps.localhost"] })
    const pem = `${certificatePem}${Redacted.value(privateKeyPem)}`
    write(files.fallback, pem)
    write(path.join(files.certificateDir, "apps.pem"), pem)
    const list = [`${files.certificateDir}/apps.pem`]
    for (let index = 0; index < moreCertificates; index++) {
      const file = path.join(files.certificateDir, `${index}.pem`)
      write(file, pem)
      list.push(`${file} host-${index}.example`)
    }
    write(files.certificates, list.map((line) => `${line}\n`).join(""))
    write(files.hosts, sites.map(({ host, environment }) => `${host} ${environment}|0|\n`).join(""))
    write(
      files.sites,
      sites
        .map(({ environment, access = "public", port }) =>
          port === undefined
            ? `${environment} ${access}|||||\n`
            : `${environment} ${access}|127.0.0.1|${port}||\n`
        )
        .join("")
    )
    write(
      "haproxy.cfg",
      haproxyConfig({
        folder: dir,
        host: "127.0.0.1",
        httpsPort,
        httpPort,
        publicHttpsPort: httpsPort,
        appsDomain: "apps.localhost",
        controlSocket: path.join(dir, "control.sock"),
        internalSocket: path.join(dir, "internal.sock"),
        secondSocket: path.join(dir, "second.sock"),
        agentPort,
        logPort,
        agentKey: "agent-key",
        ticketKey,
        originAuthorities: "@system-ca",
        proxyProtocolFrom,
        trustedProxies,
        maxConnections: 4000,
        addressConnections: 400,
        headerSeconds,
        idleSeconds: 60,
        tunnelSeconds: 3600,
        connectSeconds: 5,
        holdSeconds: 30
      })
    )
    const child = spawn("haproxy", ["-db", "-f", path.join(dir, "haproxy.cfg")], {
      cwd: dir,
      stdio: ["ignore", "ignore", "pipe"]
    })
    let said = ""
    child.stderr.on("data", (data: Buffer) => (said += data.toString()))
    yield* Effect.addFinalizer(() =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            if (child.exitCode !== null || child.signalCode !== null) return resolve()
            child.once("exit", () => resolve())
            child.kill("SIGKILL")
          })
      )
    )
    yield* Effect.promise(() =>
      until("HAProxy listens", () => {
        if (child.exitCode !== null) throw new Error(said)
        return listens(httpsPort)
      })
    )
    return { httpsPort, httpPort, caPem, agent, logged, dir, pid: child.pid ?? 0 } satisfies RunningProxy
  }).pipe(Effect.provide(authority))

const listens = (port: number) =>
  new Promise<boolean>((resolve) => {
    const socket = net.connect(port, "127.0.0.1")
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false))
    socket.once("connect", () => socket.destroy())
  })

const serve = (server: http.Server, port: number) =>
  Effect.acquireRelease(
    Effect.promise(() => new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve))),
    () =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )
