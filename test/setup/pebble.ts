/** The test servers of Let's Encrypt: pebble, an ACME authority, and pebble-challtestsrv, the name server that it asks. */
import { type ChildProcess, spawn } from "node:child_process"
import * as dgram from "node:dgram"
import * as fs from "node:fs"
import * as https from "node:https"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { memorySecrets } from "./memory-secrets.ts"
import { freePort } from "./postgres.ts"
import { until } from "./wait.ts"

/** A program of the tests, until the scope closes. */
export const running = (
  command: string,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>> = {}
) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(command, args, {
        stdio: "ignore",
        env: { PATH: process.env["PATH"] ?? "", ...env }
      })
      // Whoever waits for what it does finds that it does nothing.
      child.on("error", () => {})
      return child
    }),
    (child) => Effect.promise(() => end(child))
  )

const end = async (child: ChildProcess) => {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  const gone = new Promise((resolve) => child.once("exit", resolve))
  child.kill("SIGKILL")
  await gone
}

const port = Effect.promise(() => freePort())

/** Free for UDP as well, which tests mark other ports by (see `freePort`). */
export const portForBoth = Effect.promise(async () => {
  // Below the ports of managed servers: none that the system hands out in between to whoever asks for any.
  for (;;) {
    const port = 15_000 + Math.floor(Math.random() * 4_500)
    const socket = dgram.createSocket("udp4")
    const server = net.createServer()
    const isFree = await Promise.all([
      new Promise<boolean>((resolve) => {
        socket.once("error", () => resolve(false))
        socket.bind({ port, address: "127.0.0.1", exclusive: true }, () => resolve(true))
      }),
      new Promise<boolean>((resolve) => {
        server.once("error", () => resolve(false))
        server.listen(port, "127.0.0.1", () => resolve(true))
      })
    ])
    await new Promise<void>((resolve) => socket.close(() => resolve()))
    await new Promise<void>((resolve) => server.close(() => resolve()))
    if (isFree.every((one) => one)) return port
  }
})

/** A name server that says what it is told, and nothing of other names. */
export const challengeServer = Effect.gen(function* () {
  const [dns, management] = [yield* portForBoth, yield* port]
  yield* running("pebble-challtestsrv", [
    ...["-dns01", `127.0.0.1:${dns}`, "-management", `127.0.0.1:${management}`],
    ...["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv4", "", "-defaultIPv6", ""]
  ])
  const tell = (what: string, body: object) =>
    Effect.promise(async () => {
      const sent = { method: "POST", body: JSON.stringify(body) }
      const { status } = await fetch(`http://127.0.0.1:${management}/${what}`, sent)
      if (status !== 200) throw new Error(`${what}: ${status}`)
    })
  yield* Effect.promise(() =>
    until("the name server is told things", async () => {
      const sent = { method: "POST", body: JSON.stringify({ host: "started.test" }) }
      return (await fetch(`http://127.0.0.1:${management}/clear-a`, sent)).status === 200
    })
  )
  return {
    address: `127.0.0.1:${dns}`,
    cname: (host: string, target: string) => tell("set-cname", { host: `${host}.`, target: `${target}.` }),
    noCname: (host: string) => tell("clear-cname", { host: `${host}.` }),
    a: (host: string, addresses: ReadonlyArray<string>) => tell("add-a", { host: `${host}.`, addresses }),
    noA: (host: string) => tell("clear-a", { host: `${host}.` }),
    txt: (host: string, value: string) => tell("set-txt", { host: `${host}.`, value }),
    fails: (host: string) => tell("set-servfail", { host: `${host}.` }),
    recovers: (host: string) => tell("clear-servfail", { host: `${host}.` })
  }
})

export interface PebbleOptions {
  /** The name server that it asks. */
  readonly dns: string
  /** Where it validates, at the addresses that the name server tells. */
  readonly httpPort: number
  /** A name that its policy forbids. */
  readonly forbidden?: string
  /** An account has to be bound to this one; absent: to none. `hmacKey` is in base64url. */
  readonly binding?: { readonly kid: string; readonly hmacKey: string }
  readonly env?: Readonly<Record<string, string>>
}

export const pebble = Effect.fnUntraced(function* (options: PebbleOptions) {
  const { dns, httpPort, forbidden, binding, env } = options
  const [listen, management] = [yield* port, yield* port]
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-pebble-"))),
    (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true }))
  )
  const own = yield* Effect.gen(function* () {
    const { issue, caPem } = yield* CertificateAuthority
    return { ...(yield* issue({ hosts: ["127.0.0.1"] })), caPem }
  }).pipe(Effect.provide(CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))))
  const file = (name: string, text: string) => {
    const at = path.join(folder, name)
    fs.writeFileSync(at, text, { mode: 0o600 })
    return at
  }
  const config = file(
    "pebble.json",
    JSON.stringify({
      pebble: {
        listenAddress: `127.0.0.1:${listen}`,
        managementListenAddress: `127.0.0.1:${management}`,
        certificate: file("certificate.pem", own.certificatePem),
        privateKey: file("key.pem", Redacted.value(own.privateKeyPem)),
        httpPort,
        tlsPort: 1,
        ocspResponderURL: "",
        externalAccountBindingRequired: binding !== undefined,
        ...(binding === undefined ? {} : { externalAccountMACKeys: { [binding.kid]: binding.hmacKey } }),
        domainBlocklist: forbidden === undefined ? [] : [forbidden]
      }
    })
  )
  yield* running("pebble", ["-config", config, "-dnsserver", dns], { PEBBLE_VA_NOSLEEP: "1", ...env })
  /** One of its own certificates, in PEM. */
  const certificate = (which: "roots" | "intermediates") =>
    new Promise<string>((resolve, reject) => {
      https
        .get({ host: "127.0.0.1", port: management, path: `/${which}/0`, ca: own.caPem }, (response) => {
          let text = ""
          response.on("data", (chunk: Buffer) => {
            text += chunk.toString()
          })
          response.on("end", () => resolve(text))
        })
        .on("error", reject)
    })
  const root = yield* Effect.promise(() => until("pebble has its root", () => certificate("roots")))
  return {
    directory: `https://127.0.0.1:${listen}/dir`,
    /** What its certificates are signed by, and by whom that is. */
    root,
    intermediate: yield* Effect.promise(() => certificate("intermediates")),
    /** PEM files: of whom its own server's certificate is from; and of that together with its root. */
    serverAuthority: file("server-authority.pem", own.caPem),
    trusted: file("trusted.pem", `${own.caPem}\n${root}`)
  }
})
