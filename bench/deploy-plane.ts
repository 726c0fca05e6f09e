/** A control plane with an edge and an engine of its own for measurements of deployments, and what is asked of it. */
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import { AppOptions } from "#src/apps/options.ts"
import { AppConfig } from "#src/config.ts"
import { controlPlane, FirstStart } from "#src/main.ts"
import { file, tar } from "#test/builds/archives.ts"
import { baseImage, makeBase } from "#test/builds/world.ts"
import { containerEngine } from "#test/setup/containers.ts"
import { edgeClient, handshakes, storeCertificateOf } from "#test/setup/edge.ts"
import { freePort, managedPorts } from "#test/setup/postgres.ts"
import { sweep } from "#test/setup/processes.ts"
import { until } from "#test/setup/wait.ts"

/** How often it is looked whether something has come about: what is measured is known to so many milliseconds. */
const lookMs = 10

const appsDomain = "apps.localhost"

export const deployPlane = Effect.fnUntraced(function* (url: string) {
  const engine = yield* containerEngine
  makeBase(engine)
  const dataDir = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-bench-"))),
    (folder) => Effect.promise(() => sweep(folder))
  )
  const [port, metricsPort, httpsPort, httpPort] = yield* Effect.promise(() =>
    Promise.all([freePort(), freePort(), freePort(), freePort()])
  )
  const origin = `http://127.0.0.1:${port}`
  const config = AppConfig.layerWith(
    {
      dataDir,
      databaseUrl: Redacted.make(url),
      managedPorts,
      port,
      metricsPort,
      publicUrl: origin,
      rateLimit: 1_000_000,
      roles: new Set(["api", "engine", "edge"]),
      containerSocket: engine.socket
    },
    {
      SVC_BUILD_IMAGE: baseImage,
      SVC_BUILD_FREE_MB: "256",
      SVC_EDGE_HTTPS_PORT: String(httpsPort),
      SVC_EDGE_HTTP_PORT: String(httpPort)
    }
  )
  const context = yield* Layer.build(
    controlPlane.pipe(
      Layer.provide(config),
      Layer.provide(Logger.layer([])),
      Layer.provide(Layer.succeed(AppOptions, { ...(yield* AppOptions), lookMs: 500 }))
    )
  )
  const { made } = Context.get(context, FirstStart)
  if (made === undefined) return yield* Effect.die("the store was not empty")
  const key = Redacted.value(made.apiKey)

  const call = async (method: string, target: string, body?: Buffer | object) => {
    const raw = body instanceof Buffer
    const response = await fetch(`${origin}${target}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        // While a peer runs this process stands still, and its server closes connections that were kept.
        connection: "close",
        ...(body === undefined ? {} : { "content-type": raw ? "application/x-tar" : "application/json" })
      },
      ...(body === undefined ? {} : { body: raw ? new Uint8Array(body) : JSON.stringify(body) })
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${target}: ${response.status} ${text}`)
    return text === "" ? undefined : JSON.parse(text)
  }

  const caPem = yield* Effect.promise(async () => (await fetch(`${origin}/v1/ca.pem`)).text())
  const client = edgeClient({ httpsPort, httpPort, appsDomain, caPem })
  yield* storeCertificateOf({ dataDir, databaseUrl: url }, `*.${appsDomain}`)
  yield* Effect.promise(() =>
    until("the edge has its certificate", () => handshakes(client.tlsTo(`any.${appsDomain}`)))
  )

  const project = "/v1/orgs/main/projects/bench"
  const deploymentOf = (id: string) => call("GET", `${project}/deployments/${id}`)

  return {
    engine,
    call,
    project,
    /** Host name of the production environment of a project that scales to zero. */
    makeProject: async () => {
      await call("POST", "/v1/orgs/main/projects", {
        name: "Bench",
        slug: "bench",
        runtimeClass: "scale-to-zero"
      })
      const found = await until("it has an address", async () => {
        const all: ReadonlyArray<{ slug: string; address: string | null }> = await call(
          "GET",
          `${project}/environments`
        )
        return all.find(({ slug, address }) => slug === "production" && address !== null)
      })
      return new URL(found.address ?? "").hostname
    },
    /** Sends the files and waits for the image. Answers the deployment's id. */
    build: async (files: Readonly<Record<string, string>>): Promise<string> => {
      // Like the command's: the same files are the same archive.
      const mtime = new Date(0)
      const content = await tar(...Object.entries(files).map(([name, text]) => file(name, text, { mtime })))
      const digest = createHash("sha256").update(content).digest("hex")
      await call("PUT", `${project}/uploads/${digest}`, content)
      const { id } = await call("POST", `${project}/deployments`, { upload: digest })
      for (;;) {
        const { imageDigest, finishedAt, message } = await deploymentOf(id)
        if (imageDigest !== null) return id
        if (finishedAt !== null) throw new Error(`it was not built: ${message}`)
        await pause(lookMs)
      }
    },
    /** Waits until it serves. */
    serves: (id: string) =>
      until("it serves", async () => {
        const { state, finishedAt } = await deploymentOf(id)
        if (finishedAt !== null && state !== "ready") throw new Error(`it is ${state}`)
        return state === "ready"
      }),
    /** The text of an answer through the edge. */
    ask: async (host: string) => {
      const { status, text } = await Effect.runPromise(client.request(host, "/"))
      if (status !== 200) throw new Error(`${status} ${text}`)
      return text
    }
  }
})
