/**
 * A real object store that speaks S3 (OpenStack Swift), behind a TLS proxy of ours that can make trouble: errors,
 * silence, broken connections, answers that are cut off.
 */
import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as http from "node:http"
import * as https from "node:https"
import * as os from "node:os"
import * as path from "node:path"
import * as tls from "node:tls"
import { CreateBucketCommand, ListMultipartUploadsCommand, S3Client } from "@aws-sdk/client-s3"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type { DestinationConfig } from "#src/backups/destinations/connection.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { installPackage } from "#src/infra/host/setup.ts"
import { memorySecrets } from "./memory-secrets.ts"

const packages = ["swift-proxy", "swift-account", "swift-container", "swift-object"]
const script = path.join(import.meta.dirname, "s3-server.py")
const proof = "/usr/lib/python3/dist-packages/swift/common/middleware/s3api/s3api.py"
const isThere = () =>
  fs.existsSync(proof) &&
  ["account", "container", "object"].every((part) => fs.existsSync(`/usr/bin/swift-${part}-server`))

export const setUpObjectStore = (say: (line: string) => void): void => {
  if (isThere()) return
  say("Installing OpenStack Swift (needed by the tests of backup destinations) ...")
  for (const name of packages) installPackage(name)
  if (!isThere())
    say(
      `Swift is missing; the tests of backup destinations will fail. To get it: apt-get install -y ${packages.join(" ")}`
    )
}

/** What the proxy does with a request instead of handing it on. */
export type Trouble =
  | { readonly status: number; readonly code?: string; readonly text?: string }
  /** Breaks the connection when so much of the request has come. */
  | { readonly resetAfter: number }
  /** Breaks the connection when so much of the answer has gone. */
  | { readonly cutAfter: number }
  /** Answers with 64 MB of nothing in particular. */
  | { readonly flood: number }
  | "silence"
  /** Hands it on as if it had been sent an hour ago. */
  | "late"

export interface Asked {
  readonly method: string
  readonly url: string
  readonly headers: http.IncomingHttpHeaders
}

export interface ObjectStore {
  readonly endpoint: string
  /** Certificate of the authority that signed the proxy's. */
  readonly caPem: string
  readonly bucket: string
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string }
  /** May look at nothing and change nothing. */
  readonly powerless: { readonly accessKeyId: string; readonly secretAccessKey: string }
  readonly config: (values?: Partial<DestinationConfig>) => DestinationConfig
  /** Every request that came, in order. */
  readonly requests: Array<Asked>
  /** Bytes of floods that went out. */
  flooded: number
  /** Asked for every request; undefined hands it on. */
  trouble: (request: Asked) => Trouble | undefined
  /** Uploads in parts that nobody completed or gave up, below a prefix or all. */
  readonly openUploads: (prefix?: string) => Promise<number>
  /** Ends the server at once, and starts it again with what it had stored. */
  readonly kill: () => Promise<void>
  readonly restart: () => Promise<void>
}

const admin = { accessKeyId: "test:admin", secretAccessKey: "zwischen-key-4711" }
const powerless = { accessKeyId: "test:reader", secretAccessKey: "leser-key-0815" }
const bucket = "backups"

interface Running {
  readonly child: ChildProcess
  readonly port: number
}

const start = (folder: string): Promise<Running> =>
  new Promise((resolve, reject) => {
    if (!isThere()) {
      reject(new Error(`OpenStack Swift is not installed: apt-get install -y ${packages.join(" ")}`))
      return
    }
    // In a file: what is in an environment can be seen by others.
    const users = [
      `user_test_admin = ${admin.secretAccessKey} .admin`,
      `user_test_reader = ${powerless.secretAccessKey}`
    ]
    fs.writeFileSync(path.join(folder, "users"), `${users.join("\n")}\n`)
    const child = spawn("/usr/bin/python3", [script, folder], {
      stdio: ["pipe", "pipe", "pipe"],
      env: { PATH: "/usr/bin:/bin" }
    })
    let said = ""
    child.stderr.on("data", (chunk: Buffer) => {
      said = `${said}${chunk.toString()}`.slice(-4000)
    })
    child.stdout.once("data", (line: Buffer) => resolve({ child, port: Number(line.toString()) }))
    child.once("exit", (code) => reject(new Error(`Swift ended with ${code}: ${said}`)))
  })

const end = async ({ child }: Running) => {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = new Promise((resolve) => child.once("exit", resolve))
  child.kill("SIGKILL")
  await gone
}

const direct = (port: number) =>
  new S3Client({
    endpoint: `http://127.0.0.1:${port}`,
    region: "us-east-1",
    forcePathStyle: true,
    // The client marks the object that it is given.
    credentials: { ...admin },
    requestChecksumCalculation: "WHEN_REQUIRED"
  })

/** Trusts the authority as a process does whose `NODE_EXTRA_CA_CERTS` names its file. */
export const trust = (caPem: string): void =>
  tls.setDefaultCACertificates([...tls.getCACertificates("default"), caPem])

export const objectStore = Effect.gen(function* () {
  const authority = yield* CertificateAuthority
  const issued = yield* authority.issue({ hosts: ["localhost", "127.0.0.1", "s3.example.test"] })
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-s3-"))),
    (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true, maxRetries: 10 }))
  )
  let running = yield* Effect.promise(() => start(folder))
  yield* Effect.addFinalizer(() => Effect.promise(() => end(running)))
  yield* Effect.promise(() => direct(running.port).send(new CreateBucketCommand({ Bucket: bucket })))

  const server = https.createServer({
    cert: issued.certificatePem,
    key: Redacted.value(issued.privateKeyPem)
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()))),
    () =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            server.close(() => resolve())
            server.closeAllConnections()
          })
      )
  )
  const address = server.address()
  const endpoint = `https://localhost:${typeof address === "object" && address !== null ? address.port : 0}`
  const store: ObjectStore = {
    endpoint,
    caPem: authority.caPem,
    bucket,
    // The client marks the object that it is given.
    credentials: { ...admin },
    powerless,
    config: (values = {}) => ({
      endpoint,
      bucket,
      prefix: "",
      region: null,
      accessKeyId: admin.accessKeyId,
      secretAccessKey: Redacted.make(admin.secretAccessKey),
      ...values
    }),
    requests: [],
    flooded: 0,
    trouble: () => undefined,
    openUploads: async (prefix = "") => {
      const asked = new ListMultipartUploadsCommand({ Bucket: bucket, Prefix: prefix })
      const found = await direct(running.port).send(asked)
      return found.Uploads?.length ?? 0
    },
    kill: () => end(running),
    restart: async () => {
      await end(running)
      running = await start(folder)
    }
  }
  server.on("request", (incoming, response) => pass(store, () => running.port, incoming, response))
  return store
}).pipe(Effect.provide(CertificateAuthority.layer), Effect.provide(memorySecrets().layer))

const junk = Buffer.alloc(1 << 20, "x")

const pass = (
  store: ObjectStore,
  port: () => number,
  incoming: http.IncomingMessage,
  response: http.ServerResponse
) => {
  const asked = { method: incoming.method ?? "", url: incoming.url ?? "", headers: incoming.headers }
  store.requests.push(asked)
  const trouble = store.trouble(asked)
  if (trouble === "silence") return
  if (typeof trouble === "object" && "status" in trouble) {
    incoming.resume()
    incoming.once("end", () => {
      response.writeHead(trouble.status, { "content-type": "application/xml" })
      const code = trouble.code ?? "InternalError"
      response.end(
        trouble.text ?? `<?xml version="1.0"?><Error><Code>${code}</Code><Message>no</Message></Error>`
      )
    })
    return
  }
  if (typeof trouble === "object" && "flood" in trouble) {
    incoming.resume()
    response.writeHead(trouble.flood, { "content-type": "application/xml", etag: '"x"' })
    let left = 64
    const go = (): void => {
      while (left-- > 0 && !response.destroyed) {
        store.flooded += junk.length
        if (!response.write(junk)) return void response.once("drain", go)
      }
      response.end()
    }
    go()
    return
  }
  const headers = { ...incoming.headers }
  if (trouble === "late") {
    const hourAgo = new Date(Date.now() - 3_600_000).toISOString()
    headers["x-amz-date"] = hourAgo.replaceAll(/[-:]|\.\d+/g, "")
  }
  const onward = http.request(
    { host: "127.0.0.1", port: port(), method: asked.method, path: asked.url, headers },
    (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      const cut = typeof trouble === "object" && "cutAfter" in trouble ? trouble.cutAfter : undefined
      let gone = 0
      answer.on("data", (chunk: Buffer) => {
        if (cut !== undefined && gone + chunk.length > cut) {
          response.write(chunk.subarray(0, cut - gone), () => incoming.socket.destroy())
          answer.destroy()
          return
        }
        gone += chunk.length
        if (!response.write(chunk)) {
          answer.pause()
          response.once("drain", () => answer.resume())
        }
      })
      answer.once("end", () => response.end())
      answer.once("error", () => incoming.socket.destroy())
    }
  )
  onward.once("error", () => incoming.socket.destroy())
  response.once("close", () => onward.destroy())
  let come = 0
  incoming.on("data", (chunk: Buffer) => {
    come += chunk.length
    if (typeof trouble === "object" && "resetAfter" in trouble && come > trouble.resetAfter) {
      incoming.socket.destroy()
      onward.destroy()
      return
    }
    if (!onward.write(chunk)) {
      incoming.pause()
      onward.once("drain", () => incoming.resume())
    }
  })
  incoming.once("end", () => onward.end())
}
