/** Engine processes, the store they share, the place outside, and the people who change what they want. */
import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { migratedDatabase } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { until } from "#test/setup/wait.ts"
import { openPlace } from "./place.ts"
import type { Settings, ThingSpec } from "./settings.ts"

const program = fileURLToPath(new URL("./main.ts", import.meta.url))

export interface EngineProcess {
  readonly name: string
  readonly signal: (signal: NodeJS.Signals) => void
  /** Whether a signal has stopped all of it. */
  readonly stopped: () => boolean
  /** Kills it and waits until it is gone. */
  readonly kill: () => Promise<void>
  readonly alive: () => boolean
  readonly log: () => string
}

export interface StoredThing {
  readonly uid: string
  readonly size: number
  readonly phase: string
  readonly revision: string
  readonly current: boolean
  readonly leased: boolean
}

const start = (settings: Settings, preload: string | undefined): EngineProcess => {
  const child: ChildProcess = spawn(
    process.execPath,
    [
      "--disable-warning=ExperimentalWarning",
      ...(preload === undefined ? [] : ["--import", preload]),
      program,
      JSON.stringify(settings)
    ],
    { stdio: ["ignore", "pipe", "pipe"] }
  )
  let log = ""
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (chunk: Buffer) => (log += chunk.toString()))
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()))
  return {
    name: settings.name,
    signal: (signal) => void child.kill(signal),
    stopped: () =>
      fs
        .readdirSync(`/proc/${child.pid}/task`)
        // What comes before it is the name of the program, which may hold anything.
        .every((task) => /^.*\) T/s.test(fs.readFileSync(`/proc/${child.pid}/task/${task}/stat`, "utf8"))),
    kill: () => {
      child.kill("SIGKILL")
      return gone
    },
    alive: () => child.exitCode === null && child.signalCode === null,
    log: () => log
  }
}

export interface WorldOptions {
  /** Off: the place takes writes from anybody. */
  readonly fenced?: boolean
  readonly driftMs?: number
  /** Where nobody is stopped on purpose, a lease is longer than any pause that a busy machine makes. */
  readonly leaseMs?: number
}

/** Everything ends with the scope. */
export const engineWorld = Effect.fn(function* ({
  fenced = true,
  driftMs = 3_600_000,
  leaseMs = 2_000
}: WorldOptions = {}) {
  const url = yield* migratedDatabase
  const services = yield* Layer.build(
    Resources.layer.pipe(Layer.provideMerge(Db.layer({ url })), Layer.provide(KeyRing.layerEphemeral))
  )
  const run = <A, E>(self: Effect.Effect<A, E, Db | Resources>) =>
    Effect.runPromise(Effect.provide(self, services))
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
    (made) => Effect.sync(() => fs.rmSync(made, { recursive: true, force: true }))
  )
  const file = path.join(folder, "place")
  const place = yield* Effect.acquireRelease(
    Effect.sync(() => openPlace(file, fenced)),
    (opened) => Effect.sync(opened.close)
  )
  const processes = yield* Effect.acquireRelease(Effect.succeed<Array<EngineProcess>>([]), (all) =>
    Effect.promise(() => Promise.all(all.map((one) => one.kill())))
  )
  const org = yield* makeOrganization().pipe(Effect.provide(services))
  const home = yield* makeProject(org.id, "shop").pipe(Effect.provide(services))
  // Nobody converges the kinds of the project here.
  const base = {
    kind: "Thing",
    projectId: home.projectId,
    environment: "production",
    managedBy: "api"
  } as const

  const things = () =>
    run(
      Effect.flatMap(
        Db,
        ({ engine: sql }) => sql<StoredThing>`
        select r.uid, (r.spec ->> 'size')::int as size, r.phase, r.revision::text as revision,
          r.observed_generation = r.generation as current, w.lease_token is not null as leased
        from resource r join work w on w.org_id = r.org_id and w.uid = r.uid
        where r.kind = 'Thing' and r.deleted_at is null`
      )
    )
  return {
    place,
    processes,
    things,
    start: (name: string, preload?: string, settings: Partial<Settings> = {}) => {
      const databaseUrl = Redacted.value(url)
      const times = { leaseMs, heartbeatMs: 500, pollMs: 500 }
      const started = start(
        { name, databaseUrl, place: file, fenced, driftMs, concurrency: 64, ...times, ...settings },
        preload
      )
      processes.push(started)
      return started
    },
    create: async (specs: ReadonlyArray<ThingSpec>) => {
      const changes = specs.map((spec) => {
        const uid = uuid()
        return { ...base, action: "create", uid, name: uid, parentUid: home.production, spec } as const
      })
      await run(Effect.flatMap(Resources, (resources) => resources.write(org.id, changes, actor)))
      return changes.map((change) => change.uid)
    },
    update: (uid: string, spec: ThingSpec) =>
      run(
        Effect.flatMap(Resources, (resources) =>
          resources.write(org.id, [{ action: "update", uid, spec }], actor)
        )
      ),
    delete: (uid: string) =>
      run(
        Effect.flatMap(Resources, (resources) => resources.write(org.id, [{ action: "delete", uid }], actor))
      ),
    thing: async (uid: string) => (await things()).find((one) => one.uid === uid),
    /** Every thing is what was asked for, in the store and out there. */
    settled: () =>
      until("everything is as it was asked for", async () => {
        const sizes = place.sizes()
        const stored = await things()
        return stored.every(
          ({ uid, size, phase, current }) => phase === "ready" && current && sizes.get(uid) === size
        )
      })
  }
})
