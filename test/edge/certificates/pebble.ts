/**
 * A real ACME server (Let's Encrypt's pebble) and a real name server (bind9) on loopback: every name below `test` is this
 * machine, and the zone takes signed updates. Whoever has no account binding gets no account.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import * as dgram from "node:dgram"
import * as dns from "node:dns/promises"
import * as fs from "node:fs"
import * as http from "node:http"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { Agent, request } from "undici"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { freePort } from "#test/setup/postgres.ts"
import { until } from "#test/setup/wait.ts"

const nameServer = "127.0.0.1"

/** Of both protocols; `freePort` keeps the UDP port of what it gives out for itself. */
const freeDnsPort = async (): Promise<number> => {
  const socket = dgram.createSocket("udp4")
  await new Promise<void>((resolve) => socket.bind(0, nameServer, resolve))
  const { port } = socket.address()
  await new Promise<void>((resolve) => socket.close(resolve))
  return port
}

const start = (
  program: string,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>>,
  log: string
) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const out = fs.openSync(log, "a")
      const child = spawn(program, args, {
        stdio: ["ignore", out, out],
        env: { PATH: process.env["PATH"] ?? "", ...env }
      })
      fs.closeSync(out)
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

export interface AcmeWorldOptions {
  /** What this machine answers to `/.well-known/acme-challenge/<token>` under a name. */
  readonly answer: (host: string, token: string) => Promise<string | undefined>
  /** A name that pebble's policy forbids. */
  readonly forbidden: string
}

export const acmeWorld = Effect.fnUntraced(function* ({ answer, forbidden }: AcmeWorldOptions) {
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-acme-"))),
    (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true, maxRetries: 10 }))
  )
  const file = (name: string, text: string) => {
    fs.writeFileSync(path.join(folder, name), text, { mode: 0o600 })
    return path.join(folder, name)
  }
  const [dnsPort, acmePort, managementPort, httpPort] = yield* Effect.promise(() =>
    Promise.all([freeDnsPort(), freePort(), freePort(), freePort()])
  )

  const tsig = { name: "edge-key", secret: randomBytes(32).toString("base64") }
  file(
    "zone.db",
    "$TTL 1\n@ IN SOA ns.test. admin.test. 1 60 60 600 1\n@ IN NS ns.test.\nns IN A 127.0.0.1\n* IN A 127.0.0.1\n"
  )
  const named = file(
    "named.conf",
    `options { directory "${folder}"; listen-on port ${dnsPort} { ${nameServer}; }; listen-on-v6 { none; };
       pid-file none; session-keyfile none; recursion no; dnssec-validation no; };
     controls { };
     key "${tsig.name}" { algorithm hmac-sha256; secret "${tsig.secret}"; };
     zone "test" { type primary; file "zone.db"; allow-update { key "${tsig.name}"; }; };`
  )
  yield* start("named", ["-g", "-n", "1", "-c", named], {}, path.join(folder, "named.log"))
  const resolver = new dns.Resolver({ timeout: 1_000, tries: 1 })
  resolver.setServers([`${nameServer}:${dnsPort}`])

  const authority = yield* CertificateAuthority
  const issued = yield* authority.issue({ hosts: ["localhost", "127.0.0.1"] })
  const binding = { kid: "kid-1", hmacKey: randomBytes(32).toString("base64url") }
  const config = file(
    "pebble.json",
    JSON.stringify({
      pebble: {
        listenAddress: `127.0.0.1:${acmePort}`,
        managementListenAddress: `127.0.0.1:${managementPort}`,
        certificate: file("pebble.pem", issued.certificatePem),
        privateKey: file("pebble.key", Redacted.value(issued.privateKeyPem)),
        httpPort,
        tlsPort: httpPort,
        ocspResponderURL: "",
        externalAccountBindingRequired: true,
        externalAccountMACKeys: { [binding.kid]: binding.hmacKey },
        domainBlocklist: [forbidden]
      }
    })
  )
  yield* start(
    "pebble",
    ["-config", config, "-dnsserver", `${nameServer}:${dnsPort}`],
    // Four of ten good nonces are refused; a proof is looked at without a pause, each order anew.
    { PEBBLE_VA_NOSLEEP: "1", PEBBLE_WFE_NONCEREJECT: "40", PEBBLE_AUTHZREUSE: "0" },
    path.join(folder, "pebble.log")
  )

  yield* Effect.acquireRelease(
    Effect.promise(async () => {
      const server = http.createServer((incoming, outgoing) => {
        const host = (incoming.headers.host ?? "").replace(/:\d+$/, "")
        const [, token = ""] = /^\/\.well-known\/acme-challenge\/([\w-]+)$/.exec(incoming.url ?? "") ?? []
        void answer(host, token).then((found) => {
          outgoing.statusCode = found === undefined ? 404 : 200
          outgoing.end(found)
        })
      })
      await new Promise<void>((resolve) => server.listen(httpPort, "127.0.0.1", resolve))
      return server
    }),
    (server) =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            server.closeAllConnections()
            server.close(() => resolve())
          })
      )
  )

  const trusting = new Agent({ connect: { ca: authority.caPem } })
  yield* Effect.addFinalizer(() => Effect.promise(() => trusting.destroy()))
  const rootPem = yield* Effect.promise(() =>
    until("pebble answers", async () => {
      const { body } = await request(`https://127.0.0.1:${managementPort}/roots/0`, { dispatcher: trusting })
      return await body.text()
    })
  )
  yield* Effect.promise(() => until("the name server answers", () => resolver.resolve4("any.test")))
  const intermediatePem = yield* Effect.promise(async () => {
    const { body } = await request(`https://127.0.0.1:${managementPort}/intermediates/0`, {
      dispatcher: trusting
    })
    return await body.text()
  })
  return {
    rootPem,
    intermediatePem,
    texts: (name: string) =>
      Effect.promise(() => resolver.resolveTxt(name).catch(() => [])).pipe(
        Effect.map((records) => records.map((parts) => parts.join("")))
      ),
    variables: {
      SVC_ACME_DIRECTORY: `https://127.0.0.1:${acmePort}/dir`,
      SVC_ACME_CA_FILE: file("ca.pem", authority.caPem),
      SVC_ACME_EMAIL: "ann@example.com",
      SVC_ACME_EAB: `${binding.kid}:${binding.hmacKey}`
    },
    dnsSettings: {
      provider: "rfc2136",
      server: nameServer,
      port: dnsPort,
      zone: "test",
      keyName: tsig.name,
      secret: tsig.secret
    }
  }
})
