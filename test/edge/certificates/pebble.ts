/**
 * A real ACME server (Let's Encrypt's pebble) and a real name server (bind9) on loopback: every name below `test` is this
 * machine, and the zone takes signed updates. Whoever has no account binding gets no account.
 */
import { randomBytes } from "node:crypto"
import * as dns from "node:dns/promises"
import * as fs from "node:fs"
import * as http from "node:http"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { pebble, portForBoth, running } from "#test/setup/pebble.ts"
import { freePort } from "#test/setup/postgres.ts"
import { until } from "#test/setup/wait.ts"

const nameServer = "127.0.0.1"

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
  const dnsPort = yield* portForBoth
  const httpPort = yield* Effect.promise(() => freePort())

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
  yield* running("named", ["-g", "-n", "1", "-c", named])
  const resolver = new dns.Resolver({ timeout: 1_000, tries: 1 })
  resolver.setServers([`${nameServer}:${dnsPort}`])

  const binding = { kid: "kid-1", hmacKey: randomBytes(32).toString("base64url") }
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

  yield* Effect.promise(() => until("the name server answers", () => resolver.resolve4("any.test")))
  const authority = yield* pebble({
    dns: `${nameServer}:${dnsPort}`,
    httpPort,
    forbidden,
    binding,
    // Four of ten good nonces are refused; each order is proved anew.
    env: { PEBBLE_WFE_NONCEREJECT: "40", PEBBLE_AUTHZREUSE: "0" }
  })
  return {
    rootPem: authority.root,
    intermediatePem: authority.intermediate,
    texts: (name: string) =>
      Effect.promise(() => resolver.resolveTxt(name).catch(() => [])).pipe(
        Effect.map((records) => records.map((parts) => parts.join("")))
      ),
    variables: {
      SVC_ACME_DIRECTORY: authority.directory,
      SVC_ACME_CA_FILE: authority.serverAuthority,
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
