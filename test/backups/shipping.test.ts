import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { defaultBackupPolicy } from "#schemas/backup-policy.ts"
import { makeShipping } from "#src/backups/archive/shipping.ts"
import type { ManagedDatabase } from "#src/backups/Databases.ts"
import { Ledger } from "#src/backups/Ledger.ts"
import type { BackupOptions } from "#src/backups/options.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { onStore, type StoreWorld, services, storeWorld } from "./world.ts"

/** A database whose server left these segments, without the server. */
const withSegments = (world: StoreWorld, segments: number, lineage?: string) => {
  const uid = uuid()
  const database: ManagedDatabase = {
    orgId: uuid(),
    uid,
    lineage: uid,
    policy: defaultBackupPolicy,
    destinationIds: [],
    ready: true
  }
  const name = lineage === undefined ? "archive" : `archive-${lineage}`
  const folder = path.join(world.dataDir, "databases", uid, name)
  fs.mkdirSync(folder, { recursive: true })
  for (let n = 0; n < segments; n++) {
    const hex = n.toString(16).toUpperCase().padStart(8, "0")
    fs.writeFileSync(path.join(folder, `0000000100000000${hex}`), `segment ${n}`)
  }
  return { database, left: () => fs.readdirSync(folder).length }
}
const given = (world: StoreWorld, values: Partial<BackupOptions>, over: Partial<Ledger["Service"]> = {}) =>
  Effect.gen(function* () {
    const context = yield* Layer.build(services(world, values))
    const ledger = Ledger.of({ ...Context.get(context, Ledger), ...over })
    const all = Context.add(context, Ledger, ledger)
    return { ledger, shipping: yield* Effect.provide(makeShipping, all) }
  })

describe("archiving", { timeout: 300_000 }, () => {
  it.live("takes a bounded part of each log in turn, and first of those that somebody waits for", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const world = yield* storeWorld
        const [large, small, awaited] = [
          withSegments(world, 150),
          withSegments(world, 1),
          withSegments(world, 150)
        ]
        const all = [large.database, small.database, awaited.database]
        // A round that has no time at all.
        const busy = yield* given(world, { shipMs: -1, leaseSeconds: 3_600 })
        const ref = { orgId: awaited.database.orgId, lineage: awaited.database.uid }
        yield* busy.ledger.ensure(ref, ref.lineage)
        yield* busy.ledger.wantFlush(ref, 60)
        const first = yield* busy.shipping.all(all)
        assert.deepStrictEqual([large.left(), small.left(), awaited.left()], [150, 1, 150 - 64])
        assert.isTrue(first.more)
        assert.deepStrictEqual(first.unknown, new Set([large.database.uid, small.database.uid]))

        const { shipping } = yield* given(world, { shipMs: 3_600_000 })
        // The lease is the other one's.
        const refused = yield* shipping.all([awaited.database])
        assert.deepStrictEqual([awaited.left(), refused.more], [150 - 64, false])
        assert.deepStrictEqual(refused.unknown, new Set([awaited.database.uid]))
        const left: Array<unknown> = []
        for (let more = true; more; ) {
          more = (yield* shipping.all([large.database, small.database])).more
          left.push([large.left(), small.left(), more])
        }
        assert.deepStrictEqual(left, [
          [86, 0, true],
          [22, 0, true],
          [0, 0, false]
        ])
      })
    )
  )

  it.live("keeps others away for as long as it takes", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const world = yield* storeWorld
        const { database, left } = withSegments(world, 3)
        const ref = { orgId: database.orgId, lineage: database.lineage }
        const plain = yield* given(world, {})
        const { shipping } = yield* given(
          world,
          { leaseSeconds: 6 },
          {
            add: (...args) =>
              Effect.gen(function* () {
                // Until the lease would be over that it began with.
                const lease = onStore(world, "select shipper_until, now() as now from backup_lineage")
                const [first] = yield* lease
                yield* eventually(
                  "it takes longer than a lease",
                  Effect.map(lease, ([row]) => Number(row?.["now"]) > Number(first?.["shipper_until"]))
                )
                const other = yield* plain.ledger.newToken
                assert.deepStrictEqual(yield* plain.ledger.holdShipping([ref], other, 30), new Set())
                return yield* plain.ledger.add(...args)
              })
          }
        )
        yield* shipping.all([database])
        assert.strictEqual(left(), 0)
      })
    )
  )

  it.live("gives up on a full disk what a database was before, without a backup that could not be made", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const world = yield* storeWorld
        const before = withSegments(world, 2, uuid())
        const now = withSegments(world, 2)
        const { shipping } = yield* given(world, { reserveBytes: Number.MAX_SAFE_INTEGER })
        yield* shipping.all([before.database, now.database])
        assert.deepStrictEqual([before.left(), now.left()], [0, 0])
        const jobs = yield* onStore(world, "select database_uid, lineage, reason from backup_job")
        const asked = jobs.map((row) => [row["database_uid"], row["lineage"], row["reason"]])
        assert.deepStrictEqual(asked, [[now.database.uid, now.database.uid, "gap"]])
      })
    )
  )
})
