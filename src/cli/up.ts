/** `svc up`: the control plane in this process, and the first manifest on an empty store. */
import { execFile } from "node:child_process"
import * as fs from "node:fs/promises"
import { flushCompileCache } from "node:module"
import * as net from "node:net"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { ServeError } from "effect/http/HttpServerError"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { CredentialsNotKept, Keeper } from "#src/access/bootstrap.ts"
import { OtherMetrics } from "#src/api/other-metrics.ts"
import { AppConfig } from "#src/config.ts"
import { isBuilt } from "#src/dashboard/build-inputs.ts"
import { checkSettings } from "#src/features.ts"
import { endedAs } from "#src/infra/host/oom-score.ts"
import { oomScores } from "#src/infra/host/server-limits.ts"
import { setUpHost } from "#src/infra/host/setup.ts"
import { controlPlane, controlPlaneBeside, FirstStart, telemetry } from "#src/main.ts"
import { applyPlan, goalsOf, makePlan } from "#src/manifest/commands.ts"
import { effects } from "#src/manifest/plan-text.ts"
import { entryOf, localUrl } from "./admin.ts"
import { Client, call } from "./client.ts"
import { credentialsFile, type Entry, readEntries, useEntry } from "./credentials.ts"
import { limitsOfServers } from "./doctor-limits.ts"
import { makeEngineApart } from "./engine-apart.ts"
import { CliFailure, failure } from "./failure.ts"
import { allResources } from "./flags.ts"
import { Invocation } from "./invocation.ts"
import { localConfig } from "./local-config.ts"
import { refuseForeign } from "./local-store.ts"
import { isLoopback, memberCredential, readLogin } from "./login.ts"
import { paint, say, sayText, table } from "./output.ts"
import { pageSize } from "./pages.ts"
import { register, running, unregister } from "./pid-file.ts"
import { releaseMemory } from "./release-memory.ts"
import { waitFor } from "./wait.ts"
import { readyCondition } from "./watch.ts"

const quickstart = fileURLToPath(new URL("../../examples/quickstart.yaml", import.meta.url))

const buildFile = fileURLToPath(new URL("../../web/build.ts", import.meta.url))

export interface UpFlags {
  readonly file: string | undefined
  readonly apply: boolean
}

export const up = (flags: UpFlags) =>
  Effect.gen(function* () {
    const config = yield* AppConfig
    yield* checkSettings
    yield* refuseForeign(config.dataDir)
    // Said before anything is made: a taken port would otherwise show last.
    if (config.roles.has("api")) yield* refuseTaken(config.host, config.port)
    yield* refuseTaken("127.0.0.1", config.metricsPort)
    // The servers of tenants go first.
    endedAs(oomScores.platform, "self")
    yield* say(`svc starts in ${config.dataDir}`)
    yield* Effect.promise(() => setUpHost((line) => void process.stderr.write(`${line}\n`)))
    if (config.roles.has("api")) yield* builtDashboard
    const limits = yield* limitsOfServers
    if (limits.found === undefined)
      yield* say(
        `Managed servers run without limits, and each may take all memory of this machine: ${limits.why}; ${limits.hint}`
      )
    const url = yield* localUrl
    const keep = Layer.succeed(Keeper, (made) =>
      Effect.mapError(useEntry(entryOf(url, made)), ({ message }) => new CredentialsNotKept({ message }))
    )
    const apart =
      config.engineThread === "own" && config.roles.has("api") && config.roles.has("engine")
        ? makeEngineApart(yield* settingsOfEngine)
        : undefined
    // Under the control plane, not beside it: what it logs and traces goes there.
    if (apart === undefined)
      return yield* Effect.provide(
        serve(flags, url),
        controlPlane.pipe(Layer.provideMerge(telemetry), Layer.provide(keep))
      )
    // The engine's thread ends when the API has closed: until then the API would take requests without it.
    const scope = yield* Effect.scope
    return yield* Effect.provide(
      Effect.flatMap(Effect.forkIn(apart.run, scope), (engine) =>
        Effect.raceFirst(serve(flags, url), Fiber.join(engine))
      ),
      controlPlaneBeside.pipe(
        Layer.provide(Layer.succeed(OtherMetrics, apart.metrics)),
        Layer.provideMerge(telemetry),
        Layer.provide(keep)
      )
    )
  }).pipe(
    Effect.scoped,
    Effect.provide(localConfig),
    Effect.mapError((error): CliFailure => {
      if (error instanceof CliFailure) return error
      return failure(
        error instanceof ServeError ? `The server cannot listen: ${said(error.cause)}` : error.message
      )
    })
  )

const buildEnv = Object.fromEntries(
  ["PATH", "HOME", "TMPDIR", "NODE_COMPILE_CACHE"].flatMap((name) => {
    const value = process.env[name]
    return value === undefined ? [] : [[name, value]]
  })
)
/**
 * Builds the dashboard where what it is made of has changed. In a process of its own: what the bundler takes of memory is
 * given back; it gets nothing of the settings, which hold secrets. Without it everything else is served.
 */
const builtDashboard = Effect.callback<string>((resume) => {
  const child = execFile(
    process.execPath,
    [buildFile],
    { timeout: 120_000, env: buildEnv },
    (error, stdout) =>
      resume(
        Effect.succeed(error === null ? stdout.trim() : `The dashboard could not be built: ${error.message}`)
      )
  )
  return Effect.sync(() => child.kill())
}).pipe(
  Effect.flatMap((line) => (line === "" ? Effect.void : say(line))),
  // Starting a process only to look would be a sixth of a start.
  Effect.when(Effect.map(Effect.promise(isBuilt), (built) => !built))
)

/** Of the engine's thread: those of this process, and that the API is here. */
const settingsOfEngine = Effect.gen(function* () {
  const { host, port } = yield* AppConfig
  const { env } = yield* Invocation
  const address = net.isIPv6(host) ? `[${host}]` : host
  return { ...process.env, ...env, SVC_ROLES: "engine", SVC_LOCAL_API: `${address}:${port}` }
})

const said = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause))

const refuseTaken = Effect.fnUntraced(function* (host: string, port: number) {
  const code = yield* Effect.callback<string | undefined>((resume) => {
    const probe = net.createServer()
    probe.once("error", (error: NodeJS.ErrnoException) => resume(Effect.succeed(error.code ?? error.message)))
    probe.listen({ host, port }, () => probe.close(() => resume(Effect.succeed(undefined))))
  })
  if (code === undefined) return
  if (code !== "EADDRINUSE") {
    return yield* failure(`The server cannot listen on ${host}:${port} (${code}); see SVC_HOST and SVC_PORT`)
  }
  const { dataDir } = yield* AppConfig
  const [own] = (yield* running(dataDir)).filter(({ apiUrl }) => new URL(apiUrl).port === String(port))
  return yield* failure(
    own === undefined
      ? `Port ${port} is taken: does another control plane run? (SVC_PORT and SVC_METRICS_PORT choose others)`
      : `The control plane of ${dataDir} runs already (process ${own.pid}) at ${own.apiUrl}; svc status shows how it is doing, svc down stops it`
  )
})

const serve = Effect.fnUntraced(function* (flags: UpFlags, url: string) {
  const config = yield* AppConfig
  const { made } = yield* FirstStart
  yield* Effect.acquireRelease(register(config.dataDir, url), () => unregister(config.dataDir))
  // For the next start: by itself Node writes them when a process ends, and one that is killed has no time to.
  yield* Effect.sync(flushCompileCache)
  yield* Effect.forkScoped(releaseMemory)
  if (!config.roles.has("api")) {
    yield* say(`${paint("green", "The engine works")}; this process serves no API (SVC_ROLES)`)
    return yield* Effect.never
  }
  yield* say(
    `${paint("green", "The control plane serves at")} ${config.publicUrl}  (dashboard: ${config.publicUrl}/app/, operations: ${config.publicUrl}/docs)`
  )
  if (config.outboundAllow.length > 0) {
    const ranges = config.outboundAllow.join(", ")
    yield* say(
      `Addresses that users name, such as those of webhooks, may be in ${ranges} too (SVC_OUTBOUND_ALLOW)`
    )
  }
  if (made !== undefined) {
    yield* say(
      `First start: made the organization "${made.organization}", its owner and an API key, shown this once:`,
      `  ${Redacted.value(made.apiKey)}`,
      `Key and owner's session are stored in ${yield* credentialsFile} (mode 0600); svc uses them from there.`,
      "This link signs the owner in in a browser, once and within a day:",
      `  ${Redacted.value(made.signInUrl)}`
    )
  }
  yield* (
    made === undefined ? Effect.andThen(adopt(url), laterStart(flags, url)) : firstStart(flags, url)
  ).pipe(
    // The control plane serves on, whatever became of the manifest.
    Effect.catch((error) => sayText(paint("red", error.message)))
  )
  yield* say("Ctrl-C stops the control plane; databases and caches go on. svc down stops them too.")
  return yield* Effect.never
}, Effect.scoped)

const asOperator = <A, E, R>(url: string, self: Effect.Effect<A, E, R>) =>
  Effect.flatMap(readLogin({ apiUrl: url }), (login) => Effect.provide(self, Client.layer(login)))

const firstStart = Effect.fnUntraced(function* (flags: UpFlags, url: string) {
  if (!flags.apply) return
  yield* asOperator(url, applyFile(flags.file ?? quickstart, true))
  yield* say(
    "An app to try, with a database, a cache, a queue and jobs by the clock:",
    "  npm run svc -- apply -f examples/app/svc.manifest.yaml && npm run svc -- deploy examples/app"
  )
})

const laterStart = (flags: UpFlags, url: string) =>
  flags.apply && flags.file !== undefined
    ? asOperator(url, applyFile(flags.file, false))
    : asOperator(url, summary)

/**
 * Finds the operator's credential again when this data folder was served at another address, or another folder at
 * this one. Only those are tried that were made on this machine, and only here, in the process that serves.
 */
const adopt = Effect.fnUntraced(function* (url: string) {
  const entries = (yield* readEntries).filter(({ apiUrl }) => isLoopback(apiUrl))
  for (const entry of entries.sort((a, b) => Number(b.apiUrl === url) - Number(a.apiUrl === url))) {
    const rights = yield* rightsOf(url, entry)
    if (!rights.key && !rights.session) continue
    // Tokens of a sign-in are for the address where it was made.
    const { mcpSignIn: _, signIn: __, ...issued } = entry
    if (entry.apiUrl !== url) yield* useEntry({ ...issued, apiUrl: url })
    else if (entry !== entries[0]) yield* useEntry(entry)
    if (!rights.session)
      yield* say("The owner's session has ended; svc admin credentials makes another, and another key")
    return
  }
  yield* say("This machine has no credential for it: svc admin credentials makes one")
})

const rightsOf = Effect.fnUntraced(function* (url: string, entry: Entry) {
  const holds = (token: string | undefined) =>
    token === undefined
      ? Effect.succeed(false)
      : Effect.tryPromise(async (signal) => {
          const answer = await fetch(`${url}/v1/me`, {
            headers: { authorization: `Bearer ${token}` },
            signal: AbortSignal.any([signal, AbortSignal.timeout(10_000)])
          })
          await answer.text()
          return answer.ok
        }).pipe(Effect.orElseSucceed(() => false))
  return { key: yield* holds(entry.apiKey), session: yield* holds(entry.session) }
})

/** One page is enough: a start that reads every resource takes longer, and memory, the more there are. */
const summary = Effect.gen(function* () {
  const { asMember, login, org } = yield* Client
  if (memberCredential(login) === undefined) return
  const query = { limit: pageSize }
  const { items, nextCursor } = yield* call(asMember.resources.list({ params: { orgId: org }, query }))
  const ready = items.filter((resource) => readyCondition(resource)?.status === "true").length
  yield* say(
    items.length === 0
      ? `There is nothing in "${login.organization}" yet; svc apply -f FILE makes something`
      : nextCursor === null
        ? `Found ${items.length} resources again, ${ready} of them ready; nothing was changed`
        : `Found more than ${items.length} resources again; nothing was changed; svc status shows how they are`
  )
})

const applyFile = Effect.fnUntraced(function* (file: string, first: boolean) {
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
  if (effects(planned.changes).length === 0) {
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
  yield* sayText(
    `\n${table(["READY", "CONNECT WITH (shown this once; svc caches rotate, svc database rotate make another)"], rows)}`
  )
  yield* say(
    "",
    `Clients verify the servers with the certificate in ${caFile}:`,
    `  redis-cli --tls --cacert ${caFile} -u 'rediss://...'`,
    `  psql 'postgres://...&sslrootcert=${caFile}'`
  )
})
