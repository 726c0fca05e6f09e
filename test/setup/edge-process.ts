/** Edges as processes of their own would be, beside a control plane without one: each is started, stopped, or cut off alone. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { AppConfig } from "#src/config.ts"
import { controlPlane } from "#src/main.ts"
import { Plane } from "./control-plane.ts"
import { edgeClient, handshakes, TestEdge } from "./edge.ts"
import { freePort, managedPorts } from "./postgres.ts"
import { sweep } from "./processes.ts"
import { eventually } from "./wait.ts"

/** A machine with an edge: its folder, its ports, and a client of it. Nothing runs there yet. */
export const edgeMachine = Effect.gen(function* () {
  const { call, dataDir: keysFolder } = yield* Plane
  const dataDir = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
    (folder) => Effect.promise(() => sweep(folder))
  )
  const [httpsPort, httpPort] = yield* Effect.promise(() => Promise.all([freePort(), freePort()]))
  const { text: caPem } = yield* call("GET", "/v1/ca.pem", { token: null })
  const encryptionKeys = Redacted.make(fs.readFileSync(path.join(keysFolder, "encryption.keys"), "utf8"))
  const config = (databaseUrl: string, port: number, metricsPort: number) =>
    AppConfig.layerWith(
      {
        dataDir,
        databaseUrl: Redacted.make(databaseUrl),
        encryptionKeys,
        managedPorts,
        port,
        metricsPort,
        publicUrl: `http://127.0.0.1:${port}`,
        roles: new Set(["edge"])
      },
      { SVC_EDGE_HTTPS_PORT: String(httpsPort), SVC_EDGE_HTTP_PORT: String(httpPort) }
    )
  /**
   * A process of it, with this store, until its end is asked for or the scope closes. HAProxy goes on; of several
   * processes the next one has its turn then.
   */
  const start = (databaseUrl: string) =>
    Effect.gen(function* () {
      const [port, metricsPort] = yield* Effect.promise(() => Promise.all([freePort(), freePort()]))
      const scope = yield* Scope.fork(yield* Effect.scope)
      yield* controlPlane.pipe(
        Layer.provide(config(databaseUrl, port, metricsPort)),
        Layer.provide(Logger.layer([])),
        Layer.buildWithScope(scope)
      )
      return { stop: Scope.close(scope, Exit.void) }
    })
  const client = edgeClient({ httpsPort, httpPort, appsDomain: "apps.localhost", caPem })
  return {
    dataDir,
    start,
    client: Context.make(TestEdge, client),
    /** Waits until it serves managed addresses. */
    listens: eventually(
      "the edge listens",
      Effect.promise(() => handshakes(client.tlsTo("any.apps.localhost")))
    )
  }
})
