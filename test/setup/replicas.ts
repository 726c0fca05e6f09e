/** A database with standbys on a machine of its own, and the ways in which tests look at it. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { ReplicaOptions } from "#reconcilers/database/standby.ts"
import { type DatabaseSpec, DatabaseStatus } from "#schemas/database.ts"
import { type Observation, Registry, type Resource } from "#src/engine/Reconciler.ts"
import { standbyKey } from "#src/infra/postgres/standby.ts"
import { look, reachGoal, type Target } from "#test/reconcilers/settle.ts"
import {
  asApplication,
  type DatabaseResource,
  type DatabaseWorld,
  databaseReconciler,
  disturb,
  folderOf,
  makeDatabase
} from "./databases.ts"
import { signal } from "./processes.ts"
import { eventually } from "./wait.ts"

let fence = 0n
/** One run of one control plane, with the next fence. */
export const asControlPlane = <A, E>(
  world: DatabaseWorld,
  resource: DatabaseResource,
  body: (target: Target, resource: Resource) => Effect.Effect<A, E>,
  options: Partial<ReplicaOptions> = {}
) =>
  Effect.gen(function* () {
    const { reconciler } = (yield* Registry).registrations.get("Database")!
    return yield* body(reconciler, { ...resource, fence: ++fence })
  }).pipe(
    Effect.provide(databaseReconciler(world), { local: true }),
    Effect.provideService(ReplicaOptions, {
      aloneMs: 300_000,
      keepFailedMs: 7 * 86_400_000,
      lagBytes: 64 << 20,
      ...options
    })
  )

export const settle = (
  world: DatabaseWorld,
  resource: DatabaseResource,
  { settleMs = 240_000, ...options }: Partial<ReplicaOptions> & { readonly settleMs?: number } = {}
) => asControlPlane(world, resource, (target, current) => reachGoal(target, current, settleMs), options)

export const seen = (
  world: DatabaseWorld,
  resource: DatabaseResource,
  options?: Partial<ReplicaOptions>
): Effect.Effect<Observation<unknown>, unknown> => asControlPlane(world, resource, look, options)

const decodeStatus = Schema.decodeUnknownSync(DatabaseStatus)
export const statusOf = (observation: Observation<unknown>): DatabaseStatus => {
  if (observation._tag === "Absent") throw new Error("the database is absent")
  return decodeStatus(observation.status)
}

export const makeReplicated = (world: DatabaseWorld, spec: Partial<DatabaseSpec> = {}): DatabaseResource =>
  makeDatabase(world, { replicas: 2, ...spec })

export const changed = (resource: DatabaseResource, values: Partial<DatabaseSpec>): DatabaseResource => ({
  ...resource,
  generation: resource.generation + 1,
  spec: { ...resource.spec, ...values }
})

/** A standby, for helpers that look at no more than where a server is and whose password it takes. */
export const standby = (
  world: DatabaseWorld,
  resource: DatabaseResource,
  number: number
): DatabaseResource => {
  const uid = standbyKey(resource.uid, number)
  const password = world.secrets.read({ orgId: resource.orgId, uid: resource.uid, field: "password" })
  if (password !== undefined) world.secrets.write({ orgId: resource.orgId, uid, field: "password" }, password)
  return { ...resource, uid }
}

export const postmaster = (world: DatabaseWorld, resource: DatabaseResource): number =>
  Number(
    fs.readFileSync(path.join(folderOf(world, resource), "data", "postmaster.pid"), "utf8").split("\n", 1)[0]
  )

/** Main process and children of a server. */
const processesOf = (pid: number): ReadonlyArray<number> => {
  const children = fs.readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim()
  return [pid, ...(children === "" ? [] : children.split(" ").map(Number))]
}

/** Stops every process of a server where it is; answers what lets them go on. */
export const freeze = (pid: number): (() => void) => {
  process.kill(pid, "SIGSTOP")
  // A session that was just ending may be gone before the signal, or before the next one.
  const frozen = processesOf(pid)
  for (const one of frozen) signal(one, "SIGSTOP")
  return () => {
    for (const one of frozen) signal(one, "SIGCONT")
  }
}

/**
 * Kills a server with all its children, and waits until they are gone: one that outlives its main process for a moment
 * may still write into the folder.
 */
export const killServer = (world: DatabaseWorld, resource: DatabaseResource) =>
  Effect.gen(function* () {
    const pid = postmaster(world, resource)
    // Where it stands it starts no more of them.
    process.kill(pid, "SIGSTOP")
    const all = processesOf(pid)
    for (const one of all) signal(one, "SIGKILL")
    yield* eventually(
      "the processes of a server that was killed are gone",
      Effect.sync(() => !all.some(runs))
    )
  })

/** One that nobody has asked for its exit yet is listed, without a command line. */
const runs = (pid: number): boolean => {
  try {
    return fs.readFileSync(`/proc/${pid}/cmdline`, "utf8") !== ""
  } catch {
    return false
  }
}

export const rowsIn = (world: DatabaseWorld, resource: DatabaseResource) =>
  Effect.map(
    asApplication(world, resource, (sql) => sql`select count(*)::int as n from ledger`),
    ([row]): unknown => row?.["n"]
  )

/** Until it is true; what fails meanwhile counts as false. */
export const becomesTrue = (what: string, condition: Effect.Effect<boolean, unknown>) =>
  Effect.asVoid(eventually(what, Effect.result(condition), (seen) => seen._tag === "Success" && seen.success))

/** Both standbys have so many rows. */
export const everywhere = (world: DatabaseWorld, resource: DatabaseResource, rows: number, after = "") =>
  Effect.forEach(
    [1, 2],
    (number) =>
      becomesTrue(
        `standby ${number} has ${rows} rows ${after}`.trimEnd(),
        Effect.map(rowsIn(world, standby(world, resource, number)), (n) => n === rows)
      ),
    { discard: true }
  )

/** The database has a table `ledger` with 1,000 rows. */
export const fill = (world: DatabaseWorld, resource: DatabaseResource) =>
  asApplication(world, resource, (sql) =>
    sql.unsafe("create table ledger (n int); insert into ledger select generate_series(1, 1000)")
  )

/** A new database whose 1,000 rows are on both standbys. */
export const filled = Effect.fnUntraced(function* (world: DatabaseWorld) {
  const resource = makeReplicated(world)
  yield* settle(world, resource)
  yield* fill(world, resource)
  yield* everywhere(world, resource, 1000)
  return resource
})

/** So many segments of the log are finished, with next to nothing in them. */
export const finishSegments = (world: DatabaseWorld, resource: DatabaseResource, count: number) =>
  disturb(
    `do $$ begin for i in 1..${count} loop
       perform pg_logical_emit_message(false, 'test', 'a record'); perform pg_switch_wal();
     end loop; end $$`
  )(world, resource)
