/**
 * Queues against graphile-worker in the same run: publishing in batches of 100, and emptying a backlog. Ours are posted
 * over real HTTP to a server in another process, signed, and acknowledged by its answer; graphile's jobs do nothing.
 */
import { type ChildProcess, spawn } from "node:child_process"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { Logger as GraphileLogger, makeWorkerUtils, run } from "graphile-worker"
import postgres from "postgres"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Invocations } from "#src/outbound/Invocations.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import * as consume from "#src/queues/consume.ts"
import { Messages } from "#src/queues/Messages.ts"
import { QueueTables } from "#src/queues/QueueTables.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { migrate } from "#src/store/migrate.ts"
import { Resources } from "#src/store/Resources.ts"
import { PlatformSecrets, Secrets } from "#src/store/Secrets.ts"
import { actor, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"
import { type Figure, median, spread } from "./figures.ts"

const count = 50_000
const perRequest = 100
const publishers = 4
const payload = { order: 4711, email: "somebody@example.com", items: ["a", "b", "c"] }

const seconds = async (body: () => Promise<unknown>): Promise<number> => {
  const start = performance.now()
  await body()
  return (performance.now() - start) / 1000
}
const poll = async (done: () => Promise<boolean>) => {
  while (!(await done())) await new Promise((resolve) => setTimeout(resolve, 5))
}
const lanes = (requests: number, one: () => Promise<unknown>) => {
  let left = requests
  const lane = async () => {
    while (left-- > 0) await one()
  }
  return Promise.all(Array.from({ length: publishers }, lane))
}

/** An app that takes everything, as a program of its own. */
const app = `
  const server = require("node:http").createServer((request, response) => {
    request.resume().on("end", () => response.writeHead(204).end())
  })
  server.listen(0, "127.0.0.1", () => console.log(server.address().port))`
const startApp = (): Promise<{ child: ChildProcess; origin: string }> =>
  new Promise((resolve) => {
    const child = spawn(process.execPath, ["-e", app], { stdio: ["ignore", "pipe", "inherit"] })
    child.stdout?.once("data", (chunk: Buffer) =>
      resolve({ child, origin: `http://127.0.0.1:${Number(chunk.toString())}` })
    )
  })

const graphile = async (url: string, sql: postgres.Sql) => {
  const utils = await makeWorkerUtils({ connectionString: url, logger: new GraphileLogger(() => () => {}) })
  await utils.migrate()
  const jobs = Array.from({ length: perRequest }, () => ({ identifier: "noop", payload }))
  const add = await seconds(() => lanes(count / perRequest, () => utils.addJobs(jobs)))
  await sql`vacuum analyze graphile_worker._private_jobs`
  const consumed = await seconds(async () => {
    const runner = await run({
      connectionString: url,
      concurrency: 24,
      taskList: { noop: () => {} },
      noHandleSignals: true,
      logger: new GraphileLogger(() => () => {}),
      preset: {
        worker: {
          connectionString: url,
          maxPoolSize: 10,
          concurrentJobs: 24,
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
          localQueue: { size: 500 },
          pollInterval: 2_000
        }
      }
    })
    await poll(async () => {
      const [row] = await sql`select exists (select from graphile_worker._private_jobs) as left`
      return row?.["left"] === false
    })
    await runner.stop()
  })
  await utils.release()
  return { add: count / add, consume: count / consumed }
}

export const queues = async (url: string): Promise<ReadonlyArray<Figure>> => {
  await Effect.runPromise(migrate(Redacted.make(url)))
  const sql = postgres(url, { max: 2, onnotice: () => {} })
  const { child, origin } = await startApp()
  const store = Layer.mergeAll(
    Resources.layer,
    Messages.layer,
    QueueTables.layer,
    Invocations.layer,
    Outbound.layer.pipe(Layer.provide(CertificateAuthority.layer))
  ).pipe(
    Layer.provideMerge(Layer.mergeAll(Secrets.layer, PlatformSecrets.layer)),
    Layer.provideMerge(KeyRing.layerEphemeral),
    Layer.provideMerge(Db.layer({ url: Redacted.make(url) })),
    Layer.provide(AppConfig.layerWith({ outboundAllow: ["127.0.0.0/8"] })),
    Layer.provide(Logger.layer([]))
  )
  const runtime = ManagedRuntime.make(store)
  const figures: Array<{ add: number; consume: number; theirs: { add: number; consume: number } }> = []
  const messages = await runtime.runPromise(Messages)
  const tables = await runtime.runPromise(QueueTables)
  const place = await runtime.runPromise(
    Effect.gen(function* () {
      const { id } = yield* makeOrganization()
      const { production, projectId } = yield* makeProject(id, "bench")
      return { orgId: id, production, projectId }
    })
  )
  await sql`update resource set spec = ${sql.json({ origin })} where uid = ${place.production}`
  const uid = uuid()
  await runtime.runPromise(
    Effect.flatMap(Resources, (resources) =>
      resources.write(
        place.orgId,
        [
          {
            action: "create",
            uid,
            kind: "Queue",
            projectId: place.projectId,
            environment: "production",
            name: "bench",
            parentUid: place.production,
            spec: {},
            managedBy: "api"
          }
        ],
        actor
      )
    )
  )
  await runtime.runPromise(
    tables.apply(
      { orgId: place.orgId, uid, fence: 1n, environmentUid: place.production },
      {
        paused: false,
        retention_seconds: 86_400,
        dead_letter_uid: null,
        path: "/",
        max_batch_size: 100,
        max_batch_wait_seconds: 0,
        max_retries: 3,
        retry_delay_seconds: 0
      },
      16
    )
  )
  const body = JSON.stringify(payload)
  const some = Array.from({ length: perRequest }, () => ({ body, delaySeconds: 0 }))
  for (let round = 0; round < 6; round++) {
    const add = await seconds(() =>
      lanes(count / perRequest, () => runtime.runPromise(messages.publish(place.orgId, uid, some, actor)))
    )
    await sql`vacuum analyze queue_message`
    const consumed = await seconds(async () => {
      const loop = Scope.makeUnsafe()
      await runtime.runPromise(Scope.provide(Layer.build(Layer.fresh(consume.layer)), loop))
      await poll(async () => {
        const [row] = await sql`select exists (select from queue_message) as left`
        return row?.["left"] === false
      })
      await Effect.runPromise(Scope.close(loop, Exit.void))
    })
    const theirs = await graphile(url, sql)
    // The first one is for the compilers of Node.
    if (round > 0) figures.push({ add: count / add, consume: count / consumed, theirs })
  }
  await runtime.dispose()
  child.kill("SIGKILL")
  await sql.end()
  const of = (pick: (figure: (typeof figures)[number]) => number) => ({
    value: median(figures.map(pick)),
    unit: "/s",
    note: figures.map((figure) => Math.round(pick(figure))).join(" ")
  })
  const ratio = (pick: (figure: (typeof figures)[number]) => number) => {
    const ratios = figures.map(pick)
    return { value: median(ratios), unit: "x", note: spread(ratios) }
  }
  const [ourAdd, ourConsume] = [of(({ add }) => add), of(({ consume }) => consume)]
  const [theirAdd, theirConsume] = [of(({ theirs }) => theirs.add), of(({ theirs }) => theirs.consume)]
  return [
    { name: "messages published (100 a request)", ...ourAdd },
    { name: "graphile-worker addJobs (100 a call)", ...theirAdd },
    { name: "messages delivered over HTTP", ...ourConsume },
    { name: "graphile-worker no-op jobs (tuned)", ...theirConsume },
    { name: "publish / graphile-worker", ...ratio(({ add, theirs }) => add / theirs.add), aim: ">= 1.5" },
    {
      name: "consume / graphile-worker",
      ...ratio(({ consume, theirs }) => consume / theirs.consume),
      aim: ">= 1.3"
    }
  ]
}
