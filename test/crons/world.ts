/** A store, runners on it as so many processes would have them, and jobs whose times the test chooses. */
import { randomUUIDv7 } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { CronSpec } from "#schemas/cron.ts"
import { AppConfig } from "#src/config.ts"
import { Crons } from "#src/crons/Crons.ts"
import { DueRuns } from "#src/crons/DueRuns.ts"
import { CronOptions } from "#src/crons/options.ts"
import * as runner from "#src/crons/runner.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { Messages } from "#src/queues/Messages.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

const config = Layer.unwrap(
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
      (dataDir) => Effect.sync(() => fs.rmSync(dataDir, { recursive: true, force: true }))
    ),
    (dataDir) => AppConfig.layerWith({ dataDir })
  )
)

/** Everything that jobs need but runners. */
export const world = Layer.mergeAll(Crons.layer, DueRuns.layer, Messages.layer, Outbound.layer).pipe(
  Layer.provideMerge(Layer.mergeAll(Resources.layer, Invocations.layer)),
  Layer.provide(CertificateAuthority.layer),
  Layer.provide(PlatformSecrets.layer),
  Layer.provideMerge(KeyRing.layer),
  Layer.provideMerge(testDb()),
  Layer.provideMerge(config)
)

/** Half a year from now: no time of such a job comes during a test. */
export const rarely = `0 0 1 ${((new Date().getUTCMonth() + 6) % 12) + 1} *`

/** A lease lasts longer than any pause of this process: tests end those that are to end. */
export const quick = (values: Partial<CronOptions> = {}) =>
  Effect.map(
    CronOptions,
    (defaults): CronOptions => ({
      ...defaults,
      leaseMs: 120_000,
      heartbeatMs: 300,
      drainMs: 1_000,
      longestSleepMs: 500,
      ...values
    })
  )

/** One process's runner, until the scope closes. */
export const startRunner = (values: Partial<CronOptions> = {}) =>
  Effect.gen(function* () {
    const options = yield* quick(values)
    yield* Layer.build(
      Layer.fresh(runner.layer).pipe(
        Layer.provide(Layer.fresh(DueRuns.layer)),
        Layer.provide(Layer.succeed(CronOptions, options))
      )
    )
  })

/** A project whose app answers at `origin`. */
export const makeApp = Effect.fnUntraced(function* (origin: string | undefined) {
  const { engine: sql } = yield* Db
  const org = yield* makeOrganization()
  const place = yield* makeProject(org.id, `shop-${uuid().slice(-8)}`)
  if (origin !== undefined) {
    yield* Effect.orDie(
      sql`update resource set spec = ${sql.json({ origin })}::jsonb where uid = ${place.production}`
    )
  }
  return { orgId: org.id, ...place }
})
export type App = Effect.Success<ReturnType<typeof makeApp>>

const decode = Schema.decodeUnknownSync(CronSpec)

/** A job in force, with the first time that the test names; else it runs when it is triggered. */
export const makeJob = Effect.fnUntraced(function* (app: App, values: object = {}, firstAt?: number) {
  const crons = yield* Crons
  const resources = yield* Resources
  const uid = uuid()
  const name = `job-${uid.slice(-12)}`
  const spec = decode({ schedule: rarely, target: { kind: "http", path: "/jobs" }, ...values })
  yield* resources.write(
    app.orgId,
    [
      {
        action: "create",
        uid,
        kind: "Cron",
        projectId: app.projectId,
        environment: "production",
        name,
        parentUid: app.production,
        spec,
        managedBy: "api"
      }
    ],
    actor
  )
  const ref = { orgId: app.orgId, uid }
  yield* crons.put(
    { ...ref, name, environmentUid: app.production, config: spec, fence: 1n },
    firstAt === undefined ? null : new Date(firstAt)
  )
  return { ...ref, name, spec }
})
export type Job = Effect.Success<ReturnType<typeof makeJob>>

export const trigger = Effect.fnUntraced(function* (job: Job) {
  const made = yield* (yield* Crons).trigger(job, randomUUIDv7(), actor)
  return made._tag === "Some" ? made.value.id : yield* Effect.die("the job is gone")
})

export const runsOf = (job: Job) => Effect.flatMap(Crons, (crons) => crons.runs(job, 100))

export const until = <A, E, R>(self: Effect.Effect<A, E, R>, holds: (value: A) => boolean) =>
  eventually("what the scheduler was to do", self, holds)

/** The run, once it has ended. */
export const ended = (job: Job, id: string) =>
  Effect.map(
    until(runsOf(job), (runs) => runs.some((run) => run.id === id && run.finishedAt !== null)),
    (runs) => runs.find((run) => run.id === id)!
  )
