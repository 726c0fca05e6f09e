import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { coarse } from "#reconcilers/database/standby.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import {
  asApplication,
  type DatabaseResource,
  databaseRemains,
  databaseWorld,
  disturb,
  folderOf
} from "#test/setup/databases.ts"
import { passwordOf, setPassword } from "#test/setup/machine.ts"
import {
  becomesTrue,
  changed,
  everywhere,
  fill,
  finishSegments,
  freeze,
  makeReplicated,
  postmaster,
  rowsIn,
  seen,
  settle,
  standby,
  statusOf
} from "#test/setup/replicas.ts"

/** Each has a machine of its own, and mostly waits for it. */
const minutes = (count: number) => ({ timeout: count * 60_000, concurrent: true })

it.live(
  "standbys show what the primary has and take nothing, follow a change of password and of size, and go when they are not wanted",
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const resource = makeReplicated(world)
      const copies = [1, 2].map((number) => standby(world, resource, number))
      yield* settle(world, resource)
      const status = statusOf(yield* seen(world, resource))
      assert.deepStrictEqual(
        status.replicas?.map(({ number, state, problem }) => ({ number, state, problem })),
        [
          { number: 1, state: "streaming", problem: null },
          { number: 2, state: "streaming", problem: null }
        ]
      )
      assert.strictEqual(new Set([status.port, ...(status.replicas ?? []).map(({ port }) => port)]).size, 3)

      // Over TLS with the same password, and only read.
      yield* fill(world, resource)
      yield* everywhere(world, resource, 1000)
      for (const copy of copies) {
        const refused = yield* Effect.flip(
          asApplication(world, copy, (sql) => sql`insert into ledger values (0)`)
        )
        assert.match(String(refused.cause), /read-only transaction/)
        const unencrypted = yield* Effect.flip(
          asApplication(world, copy, (sql) => sql`select 1`, { ssl: false })
        )
        assert.match(String(unencrypted.cause), /pg_hba|encryption/)
      }

      // A new password ends what goes on with the old one, on the standbys as well.
      const old = passwordOf(world, resource)
      const sleeping = (copy: DatabaseResource) =>
        asApplication(world, copy, (sql) => sql`select pg_sleep(3600)`).pipe(
          Effect.flip,
          Effect.map(({ cause }) => String(cause))
        )
      const sessions = yield* Effect.forkScoped(
        Effect.forEach(copies, sleeping, { concurrency: "unbounded" })
      )
      yield* becomesTrue(
        "both sessions are there",
        Effect.as(
          Effect.forEach(copies, (copy) =>
            disturb(
              "select 1 / count(*) from pg_stat_activity where usename = 'app' and query like '%pg_sleep%'"
            )(world, copy)
          ),
          true
        )
      )
      setPassword(world, resource, `second-${old}`)
      const rotated = changed(resource, { credentialVersion: 2 })
      yield* settle(world, rotated)
      for (const said of yield* Fiber.join(sessions))
        assert.match(said, /terminating connection|CONNECTION_CLOSED/)
      for (const number of [1, 2]) {
        const copy = standby(world, resource, number)
        const refused = yield* Effect.flip(
          asApplication(world, copy, (sql) => sql`select 1`, { password: old })
        )
        assert.match(String(refused.cause), /password authentication failed/)
        yield* asApplication(world, copy, (sql) => sql`select 1`)
      }

      // A larger and a smaller size restart the servers in their turn. That makes no standby the primary, nor does a crash.
      yield* settle(world, changed(rotated, { sku: "db-s2" }))
      yield* settle(world, rotated)
      process.kill(postmaster(world, resource), "SIGKILL")
      yield* settle(world, rotated)
      const after = statusOf(yield* seen(world, rotated))
      assert.isUndefined(after.failover)
      assert.deepStrictEqual(
        after.replicas?.map(({ state }) => state),
        ["streaming", "streaming"]
      )
      yield* asApplication(world, resource, (sql) => sql`insert into ledger values (1)`)
      yield* everywhere(world, resource, 1001)

      // Without them nothing of them is left.
      const without = changed(rotated, { replicas: 0 })
      yield* settle(world, without)
      for (const copy of copies) assert.deepStrictEqual(yield* databaseRemains(world, copy), [])
      assert.isUndefined(statusOf(yield* seen(world, without)).replicas)
      assert.strictEqual(yield* rowsIn(world, resource), 1001)
    }).pipe(Effect.scoped),
  minutes(15)
)

it("how far it is behind is told in steps, so that a database that is only busy does not change", () => {
  const mib = 1 << 20
  const told = (values: ReadonlyArray<number>) => {
    let last: number | null = null
    return values.map((value) => (last = coarse(value, mib, last)))
  }
  assert.deepStrictEqual(told([0, 1, 200_000, mib - 1]), [0, 0, 0, 0])
  assert.deepStrictEqual(
    told([mib, mib + 1, 3 * mib, 64 * mib, 64 * mib + 1]).map((one) => (one ?? 0) / mib),
    [1, 2, 4, 64, 128]
  )
  // Around a step it is not told up and down.
  assert.deepStrictEqual(
    told([1.5 * mib, 0.9 * mib, 2 * mib, 0.6 * mib, 0.5 * mib]).map((one) => (one ?? 0) / mib),
    [2, 2, 2, 2, 0]
  )
  assert.isNull(coarse(null, mib, 2 * mib))
})

campaign(
  it.live,
  "standby-heals",
  "a standby that is stopped shows how far it is behind, and one that is killed or falls off heals",
  { roundMs: 900_000, rounds: 0 },
  () =>
    Effect.gen(function* () {
      const world = yield* databaseWorld
      const resource = makeReplicated(world)
      yield* settle(world, resource)
      yield* asApplication(world, resource, (sql) => sql.unsafe("create table ledger (n int)"))
      const [first, second] = [standby(world, resource, 1), standby(world, resource, 2)]

      const thaw = freeze(postmaster(world, first))
      yield* asApplication(world, resource, (sql) =>
        sql.unsafe("insert into ledger select generate_series(1, 100000)")
      )
      yield* becomesTrue(
        "one of them is far behind, and the database ready all the same",
        Effect.map(seen(world, resource, { lagBytes: 1_000_000 }), (looked) => {
          const [behind, other] = statusOf(looked).replicas ?? []
          return (
            looked._tag === "Present" &&
            looked.ready &&
            looked.note?.reason === "ReplicaLagging" &&
            (behind?.lagBytes ?? 0) > 1_000_000 &&
            (other?.lagBytes ?? 1_000_000) < 1_000_000
          )
        })
      )
      thaw()
      yield* becomesTrue(
        "it has caught up",
        Effect.map(rowsIn(world, first), (n) => n === 100_000)
      )

      process.kill(postmaster(world, second), "SIGKILL")
      yield* becomesTrue(
        "it is seen to be down",
        Effect.map(
          seen(world, resource),
          (now) =>
            now._tag === "Present" &&
            now.ready &&
            now.note?.reason === "ReplicaDown" &&
            statusOf(now).replicas?.[1]?.state === "down"
        )
      )
      yield* settle(world, resource)
      yield* becomesTrue(
        "it has caught up as well",
        Effect.map(rowsIn(world, second), (n) => n === 100_000)
      )

      // What it needs of the log is gone: it is copied anew.
      process.kill(postmaster(world, second), "SIGKILL")
      yield* becomesTrue(
        "the slot is free",
        Effect.as(disturb("select pg_drop_replication_slot('svc_replica_2')")(world, resource), true)
      )
      const log = path.join(folderOf(world, resource), "data", "pg_wal")
      const [now] = yield* asApplication(
        world,
        resource,
        (sql) => sql`select pg_walfile_name(pg_current_wal_lsn()) as segment`
      )
      const needed = path.join(log, String(now?.["segment"]))
      assert.isTrue(fs.existsSync(needed))
      yield* asApplication(world, resource, (sql) => sql`insert into ledger select generate_series(1, 100)`)
      yield* finishSegments(world, resource, 20)
      // It goes when it is archived, and when the other standby has said that it has it.
      yield* becomesTrue(
        "the log goes",
        Effect.map(disturb("checkpoint")(world, resource), () => !fs.existsSync(needed))
      )
      const folder = path.join(folderOf(world, second), "data")
      const before = fs.statSync(folder).ino
      yield* settle(world, resource)
      assert.notStrictEqual(fs.statSync(folder).ino, before)
      yield* becomesTrue(
        "it has the rows",
        Effect.map(rowsIn(world, second), (n) => n === 100_100)
      )
    })
)
