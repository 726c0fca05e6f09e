/**
 * Custom domains: how long it takes from `domains.add`, with DNS already right, until a visitor who trusts the authority's
 * root is served, by a whole control plane with a real HAProxy, Let's Encrypt's test authority (pebble) and its name server.
 * Held against the same authority's order alone, by the same client without a control plane around it.
 */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as http from "node:http"
import * as https from "node:https"
import * as os from "node:os"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { AppConfig } from "#src/config.ts"
import { makeAcmeClient } from "#src/edge/certificates/acme/AcmeClient.ts"
import { accountKeyOf } from "#src/edge/certificates/acme/jws.ts"
import { obtain } from "#src/edge/certificates/acme/order.ts"
import { makeTransport } from "#src/edge/certificates/acme/transport.ts"
import { newPrivateKey } from "#src/edge/certificates/acme/x509.ts"
import { controlPlane, FirstStart } from "#src/main.ts"
import { challengeServer, pebble } from "#test/setup/pebble.ts"
import { freePort, managedPorts } from "#test/setup/postgres.ts"
import { sweep } from "#test/setup/processes.ts"
import { until } from "#test/setup/wait.ts"
import { type Figure, median } from "./figures.ts"

const oneByOne = 8
const together = 20

export const domains = async (url: string): Promise<ReadonlyArray<Figure>> => {
  if (spawnSync("pebble", ["-version"]).error !== undefined) {
    console.log("  skipped: apt-get install -y --no-install-recommends pebble")
    return []
  }
  return Effect.runPromise(Effect.scoped(measured(url)))
}

const decodeEnvironments = Schema.decodeUnknownSync(
  Schema.Array(Schema.Struct({ slug: Schema.String, address: Schema.NullOr(Schema.String) }))
)

const listening = (answer: http.RequestListener, port = 0) =>
  Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<http.Server>((resolve) => {
          const server = http.createServer(answer)
          server.listen(port, "127.0.0.1", () => resolve(server))
        })
    ),
    (server) =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )

const seconds = async (run: () => Promise<unknown>): Promise<number> => {
  const began = performance.now()
  await run()
  return (performance.now() - began) / 1_000
}

/** The seconds that the authority's orders take alone: proved by a server that only answers challenges. */
const alone = Effect.fnUntraced(function* (dns: Effect.Success<typeof challengeServer>) {
  const httpPort = yield* Effect.promise(freePort)
  const { directory, serverAuthority } = yield* pebble({ dns: dns.address, httpPort })
  const answers = new Map<string, string>()
  yield* listening((request, response) => {
    response.end(answers.get(path.basename(request.url ?? "")))
  }, httpPort)
  const client = makeAcmeClient(yield* makeTransport(fs.readFileSync(serverAuthority, "utf8")), {
    directoryUrl: directory,
    email: undefined,
    binding: undefined,
    key: accountKeyOf(Redacted.value(yield* newPrivateKey))
  })
  const order = Effect.fnUntraced(function* (name: string) {
    yield* dns.a(name, ["127.0.0.1"])
    const began = performance.now()
    yield* obtain(
      {
        client,
        jobs: {
          orderWait: () => Effect.succeed(undefined),
          keepOrder: () => Effect.succeed(true),
          putChallenge: (_, { token, keyAuthorization }) =>
            Effect.sync(() => answers.set(token, keyAuthorization) !== undefined),
          removeChallenge: () => Effect.void
        },
        resolver: { caa: () => Effect.succeed({ records: [], exists: true }) },
        dns: undefined,
        orgOrders: 1
      },
      {
        orgId: null,
        name,
        issuer: undefined,
        directory: undefined,
        chain: undefined,
        fingerprint: undefined,
        renewAt: undefined,
        due: true,
        failures: 0,
        order: undefined,
        lease: 1n
      }
    )
    return (performance.now() - began) / 1_000
  })
  // The first one makes the account.
  yield* order("first.alone.example")
  return yield* Effect.forEach(Array.from({ length: oneByOne }), (_, index) =>
    order(`n${index}.alone.example`)
  )
})

const measured = Effect.fnUntraced(function* (url: string) {
  const dns = yield* challengeServer
  const dataDir = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-bench-"))),
    (folder) => Effect.promise(() => sweep(folder))
  )
  const [httpPort, httpsPort, port, metricsPort] = yield* Effect.promise(() =>
    Promise.all([freePort(), freePort(), freePort(), freePort()])
  )
  const { directory, root, trusted } = yield* pebble({ dns: dns.address, httpPort })
  const config = AppConfig.layerWith(
    {
      dataDir,
      databaseUrl: Redacted.make(url),
      managedPorts,
      port,
      metricsPort,
      publicUrl: `http://127.0.0.1:${port}`,
      rateLimit: 100_000,
      roles: new Set(["api", "engine", "edge"])
    },
    {
      SVC_EDGE_HTTPS_PORT: String(httpsPort),
      SVC_EDGE_HTTP_PORT: String(httpPort),
      SVC_DNS_SERVERS: dns.address,
      SVC_APPS_DOMAIN: "apps.test",
      SVC_ACME_DIRECTORY: directory,
      SVC_ACME_CA_FILE: trusted,
      SVC_ORG_CERTIFICATE_ORDERS: "1000"
    }
  )
  const context = yield* Layer.build(
    controlPlane.pipe(Layer.provide(config), Layer.provide(Logger.layer([])))
  )
  const token = Context.get(context, FirstStart).made?.apiKey
  const app = yield* listening((_, response) => void response.end("here"))
  const address = app.address()
  const origin = `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`

  const call = async (method: string, at: string, body?: object): Promise<unknown> => {
    const response = await fetch(`http://127.0.0.1:${port}/v1/orgs/main/projects${at}`, {
      method,
      headers: {
        authorization: `Bearer ${token === undefined ? "" : Redacted.value(token)}`,
        "content-type": "application/json"
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) })
    })
    if (!response.ok) throw new Error(`${method} ${at}: ${response.status} ${await response.text()}`)
    return response.json()
  }
  const isServed = (host: string) =>
    new Promise<boolean>((resolve) => {
      https
        .get(
          { host: "127.0.0.1", port: httpsPort, servername: host, ca: root, agent: false, headers: { host } },
          (response) => {
            response.resume()
            resolve(response.statusCode === 200)
          }
        )
        .once("error", () => resolve(false))
    })
  const pause = () => new Promise((resolve) => setTimeout(resolve, 20))

  yield* Effect.promise(async () => {
    await call("POST", "", { slug: "shop", name: "Shop" })
    await call("PATCH", "/shop/environments/production", { origin })
  })
  const target = yield* Effect.promise(() =>
    until("the environment has an address", async () => {
      const environments = decodeEnvironments(await call("GET", "/shop/environments"))
      const found = environments.find(({ slug }) => slug === "production")?.address
      return found == null ? undefined : new URL(found).hostname
    })
  )
  yield* dns.a(target, ["127.0.0.1"])
  const pointed = (host: string) => Effect.andThen(dns.a(host, ["127.0.0.1"]), dns.cname(host, target))
  const added = (host: string) =>
    seconds(async () => {
      await call("POST", "/shop/domains", { hostname: host })
      while (!(await isServed(host))) await pause()
    })

  // The first one makes the account at the authority.
  const warm = "first.customer.example"
  yield* pointed(warm)
  yield* Effect.promise(async () => {
    await until("an edge is at work", () =>
      call("POST", "/shop/domains", { hostname: warm }).then(() => true)
    )
    await until("the first domain is served", () => isServed(warm))
  })
  const orders = yield* alone(dns)
  const times: Array<number> = []
  for (let index = 0; index < oneByOne; index++) {
    const host = `n${index}.customer.example`
    yield* pointed(host)
    times.push(yield* Effect.promise(() => added(host)))
  }
  const many = Array.from({ length: together }, (_, index) => `m${index}.customer.example`)
  yield* Effect.forEach(many, pointed)
  const all = yield* Effect.promise(() => Promise.all(many.map(added)))
  const order = median(orders)
  const figures: ReadonlyArray<Figure> = [
    {
      name: "added until served / the authority's order alone",
      value: median(times) / order,
      unit: "x",
      note: `${median(times).toFixed(2)} s, the slowest of ${oneByOne} ${Math.max(...times).toFixed(2)} s; the order ${order.toFixed(2)} s`
    },
    {
      name: `${together} at once, the last / one`,
      value: Math.max(...all) / median(times),
      unit: "x",
      note: `${Math.max(...all).toFixed(2)} s`
    }
  ]
  return figures
})
