/** Leases that Postgres has given and not yet on its disk, when it is killed. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { anyPool } from "#schemas/placement.ts"
import { type Claimed, WorkStore } from "#src/engine/WorkStore.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { migrate } from "#src/store/migrate.ts"
import { Resources } from "#src/store/Resources.ts"
import * as Work from "#src/store/Work.ts"
import { makeOrganization, makeProject } from "#test/setup/fixtures.ts"
import { startPostgres } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"

const leaseMs = 600_000
const rooms = [{ kind: "Project", pool: anyPool, room: 10, fullOrgs: [] }]

const highest = (claimed: ReadonlyArray<Claimed>) =>
  claimed.map(({ token }) => token).sort((a, b) => Number(b - a))[0] ?? 0n

const asAdmin = <A>(url: string, run: (sql: postgres.Sql) => Promise<A>) =>
  Effect.promise(async () => {
    const sql = postgres(url, { max: 1, onnotice: () => {} })
    try {
      return await run(sql)
    } finally {
      await sql.end()
    }
  })

const server = Effect.acquireRelease(
  Effect.promise(() => startPostgres({ durable: "against kills" })),
  ({ stop }) => Effect.sync(stop)
)

it.live("a lease that a crash takes back writes nothing, and its token is never given again", () =>
  Effect.gen(function* () {
    const { url } = yield* server
    yield* migrate(Redacted.make(url))
    const store = Layer.mergeAll(
      Work.layer,
      Resources.layer.pipe(Layer.provide(KeyRing.layerEphemeral))
    ).pipe(Layer.provideMerge(Db.layer({ url: Redacted.make(url) })))
    yield* Effect.gen(function* () {
      const work = yield* WorkStore
      const org = yield* makeOrganization()
      for (const slug of ["one", "two", "three"]) yield* makeProject(org.id, slug)
      // Only the process that is stopped below brings to the disk what nobody waits for.
      yield* asAdmin(url, (sql) =>
        Promise.all([
          sql`alter system set autovacuum = off`,
          sql`alter system set bgwriter_lru_maxpages = 0`
        ]).then(() => sql`select pg_reload_conf()`)
      )
      const writer = asAdmin(
        url,
        (sql) =>
          sql<Array<{ pid: number }>>`select pid from pg_stat_activity where backend_type = 'walwriter'`
      ).pipe(Effect.map(([row]) => row?.pid))
      const signalWriter = Effect.fnUntraced(function* (signal: "SIGSTOP" | "SIGKILL") {
        const pid = yield* eventually("there is a writer", writer, (found) => found !== undefined)
        if (pid !== undefined) process.kill(pid, signal)
        return pid
      })
      // The server ends all connections and begins again from its disk.
      const crash = Effect.gen(function* () {
        const killed = yield* signalWriter("SIGKILL")
        yield* eventually(
          "it has begun again",
          Effect.catchCause(writer, () => Effect.undefined),
          (pid) => pid !== undefined && pid !== killed
        )
      })
      const answered = <A, E>(self: Effect.Effect<A, E>) =>
        eventually("the store is back", Effect.option(self), Option.isSome).pipe(
          Effect.map(Option.getOrThrow)
        )
      let newest = 0n
      for (let round = 0; round < 3; round++) {
        yield* signalWriter("SIGSTOP")
        const lost = yield* answered(work.claim(rooms, leaseMs))
        yield* crash
        const again = yield* answered(work.claim(rooms, leaseMs))
        for (const claimed of [lost, again]) {
          assert.lengthOf(claimed, 3)
          for (const { token } of claimed) assert.isTrue(token > newest)
          newest = highest(claimed)
        }
        assert.deepStrictEqual(yield* answered(work.heartbeat(lost, leaseMs)), [])
        // Extended, they outlive the next crash.
        assert.lengthOf(yield* answered(work.heartbeat(again, leaseMs)), 3)
        yield* crash
        assert.lengthOf(yield* answered(work.heartbeat(again, leaseMs)), 3)
        assert.deepStrictEqual(yield* answered(work.claim(rooms, leaseMs)), [])
        yield* answered(work.release(again))
      }
    }).pipe(Effect.provide(store))
  })
)
