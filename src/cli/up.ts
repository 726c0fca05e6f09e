/** `svc up`: the control plane in this process, and the first manifest on an empty store. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "../config.ts"
import { setUpHost } from "../infra/setup.ts"
import { controlPlane, FirstStart, telemetry } from "../main.ts"
import { Client, call } from "./client.ts"
import { type CliFailure, failure } from "./failure.ts"
import { allResources } from "./flags.ts"
import { credentialsFile, readLogin, readStored, writeStored } from "./login.ts"
import { applyPlan, goalsOf, makePlan } from "./manifest-commands.ts"
import { paint, say, table } from "./output.ts"
import { releasePidFile, writePidFile } from "./pid-file.ts"
import { waitFor } from "./watch.ts"

const quickstart = fileURLToPath(new URL("../../examples/quickstart.yaml", import.meta.url))

export interface UpFlags {
  readonly file: string | undefined
  readonly apply: boolean
}

export const up = (flags: UpFlags) =>
  Effect.gen(function* () {
    const config = yield* AppConfig
    yield* say(`svc starts in ${config.dataDir}`)
    yield* Effect.promise(() => setUpHost((line) => void process.stderr.write(`${line}\n`)))
    yield* Effect.provide(serve(flags), Layer.mergeAll(controlPlane, telemetry))
  }).pipe(
    Effect.provide(AppConfig.layer),
    Effect.catchTag("ServeError", (error) => {
      const { cause } = error
      const inUse = cause instanceof Error && "code" in cause && cause.code === "EADDRINUSE"
      return Effect.fail(
        failure(
          inUse
            ? "The port is taken: does another control plane run? (SVC_PORT and SVC_METRICS_PORT choose others)"
            : `The server cannot listen: ${String(cause)}`
        )
      )
    }),
    Effect.mapError((error): CliFailure => (error._tag === "CliFailure" ? error : failure(error.message)))
  )

const serve = Effect.fnUntraced(function* (flags: UpFlags) {
  const config = yield* AppConfig
  const { made } = yield* FirstStart
  yield* Effect.acquireRelease(writePidFile(config.dataDir), () => releasePidFile(config.dataDir))
  const url = `http://${config.host.includes(":") ? `[${config.host}]` : config.host}:${config.port}`
  yield* say(
    `${paint("green", "The control plane serves at")} ${config.publicUrl}  (operations: ${config.publicUrl}/docs)`
  )
  if (made !== undefined) {
    const { organization } = made
    const [apiKey, session] = [Redacted.value(made.apiKey), Redacted.value(made.session)]
    yield* writeStored({ ...(yield* readStored), apiUrl: url, organization, apiKey, session })
    yield* say(
      [
        `First start: made the organization "${organization}", its owner and an API key, shown this once:`,
        `  ${apiKey}`,
        `Key and owner's session are stored in ${credentialsFile()} (mode 0600); svc uses them from there.`
      ].join("\n")
    )
  }
  const login = yield* readLogin({ apiUrl: url })
  const file = flags.file ?? (made === undefined ? undefined : quickstart)
  if (flags.apply && file !== undefined) {
    yield* Effect.provide(firstManifest(file, made !== undefined), Client.layer(login)).pipe(
      // The control plane serves on, whatever became of the manifest.
      Effect.catch((error) => say(paint("red", error.message)))
    )
  }
  yield* say("Ctrl-C stops the control plane; databases and caches go on. svc down stops them too.")
  return yield* Effect.never
}, Effect.scoped)

const firstManifest = Effect.fnUntraced(function* (file: string, first: boolean) {
  const source = yield* Effect.tryPromise({
    try: () => fs.readFile(file, "utf8"),
    catch: (cause) =>
      failure(`Cannot read ${file}: ${cause instanceof Error ? cause.message : String(cause)}`)
  })
  const planned = yield* makePlan(source, { prune: false, confirm: [] })
  if (planned.blockers.length > 0) {
    return yield* failure(
      `${file} cannot be applied: ${planned.blockers.map(({ message }) => message).join("; ")}`
    )
  }
  if (planned.changes.every(({ action }) => action === "noop" || action === "delete")) {
    return yield* say(`Everything in ${file} is there already; nothing was changed`)
  }
  yield* say(`Applying ${path.relative(process.cwd(), file) || file}:`)
  const applied = yield* applyPlan(planned.planId, true)
  yield* waitFor(goalsOf(applied), 300)
  const created = new Set(
    planned.changes.filter(({ action }) => action === "create").map(({ address }) => address)
  )
  yield* showConnections(first ? created : new Set())
})

/** Where things are. What was just made on the first start gets a password that is shown, this once. */
const showConnections = Effect.fnUntraced(function* (created: ReadonlySet<string>) {
  const { asMember, org } = yield* Client
  const { dataDir } = yield* AppConfig
  const caFile = path.join(dataDir, "ca.pem")
  const pem = yield* call(asMember.system.caCertificate())
  yield* Effect.promise(() => fs.writeFile(caFile, pem))
  const rows: Array<ReadonlyArray<string>> = []
  for (const resource of yield* allResources) {
    if (!created.has(resource.address) || resource.project === null) continue
    const place = { orgId: org, projectId: resource.project }
    const query = { environment: resource.environment ?? "production" }
    if (resource.kind === "Cache") {
      const params = { ...place, cacheId: resource.uid }
      const shown = yield* call(asMember.caches.rotateCredentials({ params, headers: {} }))
      rows.push([resource.address, shown.connectionString ?? ""])
    }
    if (resource.kind === "Database") {
      const shown = yield* call(asMember.database.rotatePassword({ params: place, query, headers: {} }))
      rows.push([resource.address, shown.connectionString ?? ""])
    }
  }
  if (rows.length === 0) return yield* say("Everything is ready; svc status shows where")
  yield* say(
    `\n${table(["READY", "CONNECT WITH (shown this once; svc caches rotate, svc database rotate make another)"], rows)}`
  )
  yield* say(
    [
      `\nClients verify the servers with the certificate in ${caFile}:`,
      `  redis-cli --tls --cacert ${caFile} -u 'rediss://...'`,
      `  psql 'postgres://...&sslrootcert=${caFile}'`
    ].join("\n")
  )
})
