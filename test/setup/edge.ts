/** An edge on free ports, and a client of it that needs no DNS. */
import { execFile } from "node:child_process"
import { X509Certificate } from "node:crypto"
import * as http from "node:http"
import * as http2 from "node:http2"
import * as https from "node:https"
import type { AddressInfo } from "node:net"
import * as tls from "node:tls"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { AppConfig, type Settings } from "#src/config.ts"
import { certificatePlace } from "#src/edge/certificates/Certificates.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { Plane, testPlane } from "./control-plane.ts"
import { freePort } from "./postgres.ts"
import { eventually } from "./wait.ts"

export interface EdgeAnswerSeen {
  readonly status: number
  readonly headers: http.IncomingHttpHeaders
  readonly text: string
}

export interface EdgeRequestOptions {
  readonly method?: string
  readonly headers?: http.OutgoingHttpHeaders
  readonly body?: string | Buffer
  /** Name of the handshake, where it is another than the host. */
  readonly servername?: string
}

export class TestEdge extends Context.Service<
  TestEdge,
  {
    readonly httpsPort: number
    readonly httpPort: number
    readonly appsDomain: string
    /** What is trusted: PEM of the internal authority. */
    readonly caPem: string
    /** Options of a connection to a host name, for clients of their own. */
    readonly tlsTo: (host: string) => tls.ConnectionOptions
    readonly request: (
      host: string,
      path: string,
      options?: EdgeRequestOptions
    ) => Effect.Effect<EdgeAnswerSeen>
    /** The same over HTTP/2. */
    readonly request2: (
      host: string,
      path: string,
      options?: EdgeRequestOptions
    ) => Effect.Effect<EdgeAnswerSeen>
    /** Without TLS, at the other port. */
    readonly requestPlain: (
      host: string,
      path: string,
      options?: EdgeRequestOptions
    ) => Effect.Effect<EdgeAnswerSeen>
  }
>()("test/TestEdge") {}

const seen = (response: http.IncomingMessage): Promise<EdgeAnswerSeen> =>
  new Promise((resolve, reject) => {
    const chunks: Array<Buffer> = []
    response.on("data", (chunk: Buffer) => chunks.push(chunk))
    response.once("error", reject)
    response.once("end", () =>
      resolve({
        status: response.statusCode ?? 0,
        headers: response.headers,
        text: Buffer.concat(chunks).toString()
      })
    )
  })

/** The client; `caPem` is the internal authority's. */
export const edgeClient = (values: {
  readonly httpsPort: number
  readonly httpPort: number
  readonly appsDomain: string
  readonly caPem: string
}): TestEdge["Service"] => {
  const { httpsPort, httpPort, caPem } = values
  const tlsTo = (host: string): tls.ConnectionOptions => ({
    host: "127.0.0.1",
    port: httpsPort,
    servername: host,
    ca: caPem
  })
  const httpsTo = (host: string): https.RequestOptions => ({
    host: "127.0.0.1",
    port: httpsPort,
    servername: host,
    ca: caPem
  })
  const send = (begin: typeof http.request, to: https.RequestOptions, options: EdgeRequestOptions) =>
    Effect.promise(
      () =>
        new Promise<EdgeAnswerSeen>((resolve, reject) => {
          const { method = "GET", headers = {} } = options
          const request = begin({ ...to, agent: false, method, headers })
          request.once("error", reject)
          request.once("response", (response) => seen(response).then(resolve, reject))
          request.end(options.body)
        })
    )
  return TestEdge.of({
    ...values,
    tlsTo,
    request: (host, path, options = {}) =>
      send(
        https.request,
        { ...httpsTo(options.servername ?? host), path },
        { ...options, headers: { host, ...options.headers } }
      ),
    requestPlain: (host, path, options = {}) =>
      send(
        http.request,
        { host: "127.0.0.1", port: httpPort, path },
        { ...options, headers: { host, ...options.headers } }
      ),
    request2: (host, path, options = {}) =>
      Effect.promise(
        () =>
          new Promise<EdgeAnswerSeen>((resolve, reject) => {
            const session = http2.connect(`https://${host}:${httpsPort}`, {
              createConnection: () =>
                tls.connect({ ...tlsTo(options.servername ?? host), ALPNProtocols: ["h2"] })
            })
            session.once("error", reject)
            const stream = session.request({
              ":method": options.method ?? "GET",
              ":path": path,
              ":authority": host,
              ...options.headers
            })
            const chunks: Array<Buffer> = []
            let headers: http2.IncomingHttpHeaders & http2.IncomingHttpStatusHeader = {}
            stream.once("response", (got) => {
              headers = got
            })
            stream.on("data", (chunk: Buffer) => chunks.push(chunk))
            stream.once("error", reject)
            stream.once("end", () => {
              session.close()
              resolve({
                status: headers[":status"] ?? 0,
                headers,
                text: Buffer.concat(chunks).toString()
              })
            })
            stream.end(options.body)
          })
      )
  })
}

/** A control plane with an edge, which listens and has its first certificate. */
export const testEdge = (
  settings: Partial<Settings> = {},
  variables: Readonly<Record<string, string>> = {}
) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const [httpsPort, httpPort] = yield* Effect.promise(() => Promise.all([freePort(), freePort()]))
      const plane = testPlane(
        { roles: new Set(["api", "engine", "edge"]), ...settings },
        {
          SVC_EDGE_HTTPS_PORT: String(httpsPort),
          SVC_EDGE_HTTP_PORT: String(httpPort),
          ...variables
        }
      )
      const edge = Layer.effect(
        TestEdge,
        Effect.gen(function* () {
          const { call, sql } = yield* Plane
          const { text } = yield* call("GET", "/v1/ca.pem", { token: null })
          const appsDomain = variables["SVC_APPS_DOMAIN"] ?? "apps.localhost"
          const client = edgeClient({ httpsPort, httpPort, appsDomain, caPem: text })
          yield* eventually(
            "the edge is at work",
            sql("select 1 from edge_node where alive_until > now()"),
            (rows) => rows.length > 0
          )
          yield* storeCertificate(`*.${appsDomain}`)
          yield* eventually(
            "the edge has the certificate of managed addresses",
            Effect.promise(() => handshakes(client.tlsTo(`any.${appsDomain}`)))
          )
          return client
        })
      )
      return Layer.provideMerge(edge, plane)
    })
  )

/** A certificate of the internal authority, as if somebody had wanted it and it had come. One that is there stays. */
export const storeCertificate = (name: string) =>
  Effect.flatMap(Plane, (plane) => storeCertificateOf(plane, name))

export const storeCertificateOf = Effect.fnUntraced(function* (
  { dataDir, databaseUrl }: Pick<Plane["Service"], "dataDir" | "databaseUrl">,
  name: string
) {
  const config = AppConfig.layerWith({ dataDir })
  const services = Layer.mergeAll(CertificateAuthority.layer.pipe(Layer.provide(PlatformSecrets.layer))).pipe(
    Layer.provideMerge(KeyRing.layer),
    Layer.provideMerge(Db.layer({ url: Redacted.make(databaseUrl), engineConnections: 2 })),
    Layer.provide(config)
  )
  yield* Effect.gen(function* () {
    const { issue } = yield* CertificateAuthority
    const { certificatePem, privateKeyPem, expiresAt } = yield* issue({ hosts: [name] })
    const sealed = (yield* KeyRing).seal(certificatePlace(name), privateKeyPem)
    const fingerprint = new X509Certificate(certificatePem).fingerprint256.replaceAll(":", "").toLowerCase()
    const { engine: sql } = yield* Db
    yield* sql`
      insert into edge_certificate
        (name, state, issuer, chain, key_id, sealed, fingerprint, not_before, not_after, due_at)
      values (${name}, 'issued', 'internal', ${certificatePem}, ${sealed.keyId}, ${sealed.bytes}, ${fingerprint},
        now(), ${expiresAt}, null)
      on conflict (name) do nothing`
  }).pipe(Effect.provide(services), Effect.orDie)
})

/** Whether a connection gets a certificate that it trusts. */
export const handshakes = (options: tls.ConnectionOptions) =>
  new Promise<boolean>((resolve) => {
    const socket = tls.connect(options)
    socket.once("secureConnect", () => {
      socket.destroy()
      resolve(true)
    })
    socket.once("error", () => resolve(false))
  })

/** An app on a free port of this machine, until the scope closes. */
export const testApp = (answer: http.RequestListener, prepare?: (server: http.Server) => void) =>
  Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<http.Server>((resolve) => {
          const server = http.createServer(answer)
          prepare?.(server)
          server.listen(0, "127.0.0.1", () => resolve(server))
        })
    ),
    (server) =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  ).pipe(
    Effect.map((server) => {
      const { port } = server.address() as AddressInfo
      return { server, port, origin: `http://127.0.0.1:${port}` }
    })
  )

export const curl = (args: ReadonlyArray<string>) =>
  Effect.promise(
    () =>
      new Promise<{ readonly code: number; readonly out: string }>((resolve) =>
        execFile(
          "curl",
          ["-sS", "--max-time", "60", ...args],
          { maxBuffer: 256 << 20 },
          (error, stdout, stderr) =>
            resolve({ code: error === null ? 0 : Number(error.code), out: `${stdout}${stderr}` })
        )
      )
  )
