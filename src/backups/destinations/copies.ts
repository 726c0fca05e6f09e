/**
 * Brings objects to the destinations of their organizations, and takes them away there when their time has passed. A
 * destination that fails is left alone for a while, longer each time, and holds up no other.
 */
import { createHash } from "node:crypto"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as Metric from "effect/Metric"
import * as PartitionedSemaphore from "effect/PartitionedSemaphore"
import * as Stream from "effect/Stream"
import { answered } from "#src/engine/answered.ts"
import { ServedRegion } from "#src/engine/options.ts"
import { storableText } from "#src/storable.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { isHistoryElsewhere } from "../Databases.ts"
import { BackupOptions } from "../options.ts"
import { type Place, PlaceError } from "../repository/Place.ts"
import { Repository } from "../repository/Repository.ts"
import { makeDestinationBackoff, type Way } from "./backoff.ts"
import { Remotes } from "./Remotes.ts"

interface Due extends Way {
  readonly lineage: string
  readonly name: string
  readonly key: string
  /** The destination as it was when somebody last began to put the object there. */
  readonly version: number | null
  readonly tries: number
  readonly lease: string
  /** Of the object; absent when it is gone. */
  readonly sha256: string | null
}

/** Copies that are taken at a time by one turn, and how many turns one destination has at once. */
const batch = 4
const turnsAtOnce = 3
/** How long one object may take: a part of a backup over a slow line. */
const longest = "1 hour"
/** Renewed while somebody is at it; what a killed process had begun is begun again after this. */
const leaseSeconds = 60
const heartbeat = "20 seconds"

const outcomes = Metric.counter("svc_backup_copies_total", {
  description: "Objects brought to destinations, or removed there, by outcome",
  incremental: true
})

/** How one copy went: a fault of the destination, unlike one of the object, holds for whatever else goes there. */
type Outcome = "done" | "object" | PlaceError

/** With an end to every wait for the store. */
const asked = <A, E, R>(statement: Effect.Effect<A, E, R>) =>
  answered("keep account of copies of backups")(repeatable(statement))

export const makeCopies = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const region = yield* ServedRegion
  const remotes = yield* Remotes
  const repository = yield* Repository
  const options = yield* BackupOptions
  const pauses = yield* makeDestinationBackoff
  const running = yield* FiberMap.make<string>()
  // Each copy on its way holds pieces of its object in memory, so they are few, and destinations take turns.
  const permits = yield* PartitionedSemaphore.make<string>({ permits: options.copiesAtOnce })

  const claim = ({ orgId, destinationId, removing }: Way, most: number) =>
    asked(sql<Due>`
      with due as (
        select org_id, lineage, name, destination_id from backup_copy c
        where org_id = ${orgId}::uuid and destination_id = ${destinationId}::uuid
          and removing = ${removing}::boolean and due_at <= now()
          and not ${isHistoryElsewhere(sql, "c", region)}
        order by due_at limit ${most}::int for update skip locked
      )
      update backup_copy c set due_at = now() + ${leaseSeconds}::int * interval '1 second',
        lease = nextval('backup_token')
      from due d where c.org_id = d.org_id and c.lineage = d.lineage and c.name = d.name
        and c.destination_id = d.destination_id
      returning c.org_id as "orgId", c.lineage, c.name, c.key, c.destination_id as "destinationId", c.version,
        c.removing, c.tries, c.lease::text as lease, (select o.stored_sha256 from backup_object o
          where o.org_id = c.org_id and o.lineage = c.lineage and o.name = c.name and o.key = c.key) as sha256`)

  /** While this process has it. */
  const row = (one: Due) =>
    sql`org_id = ${one.orgId}::uuid and lineage = ${one.lineage}::uuid and name = ${one.name}
      and destination_id = ${one.destinationId}::uuid and lease = ${one.lease}::bigint`
  const forget = (one: Due) => asked(sql`delete from backup_copy where ${row(one)}`)

  /** What leaves is compared with what was recorded when it was made: a damaged disk spreads nothing. */
  const contentOf = (one: Due, onFault: () => void) => {
    const hash = createHash("sha256")
    return repository.local.get(one.key).pipe(
      Stream.tap((chunk) => Effect.sync(() => hash.update(chunk))),
      Stream.concat(
        Stream.unwrap(
          Effect.sync(() =>
            hash.digest("hex") === one.sha256
              ? Stream.empty
              : Stream.fail(
                  new PlaceError({ reason: "read", message: `${one.name} is damaged in the repository here` })
                )
          )
        )
      ),
      Stream.tapError(() => Effect.sync(onFault))
    )
  }

  const put = Effect.fnUntraced(function* (one: Due, onFault: () => void) {
    const { place, version } = yield* remotes.current(one.orgId, one.destinationId)
    // Another attempt may have come to its end at the bucket that the destination was before.
    if (one.version !== null && one.version !== version) {
      const before = remotes.at(one.orgId, one.destinationId, one.version)
      yield* Effect.ignore(Effect.flatMap(before, (bucket) => bucket.remove([one.key])))
    }
    // Written first: whatever ends this process, it stays known where an object may be.
    const begun = yield* asked(sql`
      update backup_copy set version = ${version}::int where ${row(one)} and not removing returning name`)
    if (begun.length === 0) return
    yield* place.put(one.key, contentOf(one, onFault))
    const kept = yield* asked(sql`
      update backup_copy set stored_at = now(), error = null, tries = 0, lease = null,
        due_at = case when removing then now() end
      where ${row(one)} returning name`)
    if (kept.length === 0) yield* takeBack(one, place, version)
  })

  /** It came after somebody had removed it, and is to be removed once more; or somebody else brings it as well. */
  const takeBack = Effect.fnUntraced(function* (one: Due, place: Place, version: number) {
    const [found] = yield* asked(sql<{ readonly key: string; readonly removing: boolean }>`
      insert into backup_copy as c (org_id, lineage, name, key, destination_id, version, removing, due_at)
      values (${one.orgId}::uuid, ${one.lineage}::uuid, ${one.name}::text, ${one.key}::text,
        ${one.destinationId}::uuid, ${version}::int, true, now())
      on conflict (org_id, lineage, name, destination_id) do update set
        lease = case when c.removing and c.key = excluded.key then null else c.lease end,
        due_at = case when c.removing and c.key = excluded.key then now() else c.due_at end
      returning key, removing`)
    if (found?.key !== one.key) yield* place.remove([one.key])
  })

  const remove = Effect.fnUntraced(function* (one: Due) {
    if (one.version !== null) {
      const place = yield* remotes.at(one.orgId, one.destinationId, one.version)
      yield* place.remove([one.key])
    }
    yield* forget(one)
  })

  /** What is gone here before it was copied is wanted nowhere. */
  const unwanted = (one: Due) =>
    one.version === null
      ? forget(one)
      : asked(sql`update backup_copy set removing = true, tries = 0, lease = null, due_at = now()
          where ${row(one)}`)

  const again = (one: Due, error: PlaceError) =>
    one.removing && one.tries + 1 >= options.removalTries
      ? Effect.andThen(
          Effect.logWarning("an object of a backup stays at its destination: removing it failed too often", {
            destination: one.destinationId,
            key: one.key,
            error: error.message
          }),
          forget(one)
        )
      : asked(sql`
          update backup_copy set tries = tries + 1, error = ${storableText(error.message)}::text, lease = null,
            due_at = now() + least(600, 2 ^ least(tries + 1, 10)) * (0.5 + random()) * interval '1 second'
          where ${row(one)}`)

  const carry = (one: Due) =>
    Effect.suspend(() => {
      let damaged = false
      const act = one.removing
        ? remove(one)
        : one.sha256 === null
          ? unwanted(one)
          : put(one, () => {
              damaged = true
            })
      return act.pipe(
        Effect.timeoutOrElse({
          duration: longest,
          orElse: () =>
            Effect.fail(new PlaceError({ reason: "timeout", message: "The destination took too long" }))
        }),
        Effect.tap(() => Metric.update(Metric.withAttributes(outcomes, { outcome: "ok" }), 1)),
        Effect.as<Outcome>("done"),
        Effect.catchTag("PlaceError", (error) =>
          again(one, error).pipe(
            Effect.andThen(Metric.update(Metric.withAttributes(outcomes, { outcome: error.reason }), 1)),
            Effect.as<Outcome>(damaged ? "object" : error)
          )
        )
      )
    })

  /** Should it come late, two processes bring the same bytes to the same name. */
  const renew = (held: ReadonlySet<Due>) =>
    asked(sql`
      update backup_copy c set due_at = now() + ${leaseSeconds}::int * interval '1 second'
      from jsonb_to_recordset(${sql.json(
        [...held].map(({ orgId, lineage, name, destinationId, lease }) => ({
          orgId,
          lineage,
          name,
          destinationId,
          lease
        }))
      )}::jsonb) as h("orgId" uuid, lineage uuid, name text, "destinationId" uuid, lease bigint)
      where c.org_id = h."orgId" and c.lineage = h.lineage and c.name = h.name
        and c.destination_id = h."destinationId" and c.lease = h.lease and c.due_at is not null`)
  const giveBack = (held: ReadonlySet<Due>) =>
    Effect.forEach(
      held,
      (one) => asked(sql`update backup_copy set due_at = now(), lease = null where ${row(one)}`),
      { discard: true }
    )

  /** One after the other, until one meets a fault of the destination. Answers whether there may be more to do. */
  const turn = Effect.fnUntraced(function* (way: Way, tries: boolean) {
    const most = tries ? 1 : batch
    const due = yield* claim(way, most)
    const held = new Set(due)
    const beat = Effect.forever(Effect.andThen(Effect.sleep(heartbeat), Effect.ignore(renew(held))))
    const all = Effect.gen(function* () {
      for (const one of due) {
        const outcome = yield* carry(one)
        held.delete(one)
        if (typeof outcome !== "string") return outcome
      }
      return undefined
    })
    const fault = yield* Effect.raceFirst(all, beat)
    if (fault === undefined) {
      if (tries) yield* pauses.over(way)
      return tries || due.length === most
    }
    yield* giveBack(held)
    const failures = yield* pauses.failed(way, fault.message, tries)
    if (way.removing && failures >= options.removalTries) yield* giveUp(way, fault)
    return false
  })

  const giveUp = Effect.fnUntraced(function* (way: Way, error: PlaceError) {
    const stay = yield* asked(sql`
      delete from backup_copy where org_id = ${way.orgId}::uuid and destination_id = ${way.destinationId}::uuid
        and removing and due_at is not null returning name`)
    yield* pauses.over(way)
    yield* Effect.logWarning("objects of backups stay at their destination: removing them failed too often", {
      destination: way.destinationId,
      objects: stay.length,
      error: error.message
    })
  })

  /** A destination that failed is tried with one copy; once that went well, it is like all others. */
  const drain = (way: Way, paused: boolean) => {
    const next = (tries: boolean) => permits.withPermit(way.destinationId)(turn(way, tries))
    return Effect.gen(function* () {
      if (paused && !((yield* pauses.take(way)) && (yield* next(true)))) return
      while (yield* next(false));
    }).pipe(
      Effect.catchTag("StoreUnavailable", (error) =>
        Effect.logWarning("copies of backups could not be looked at", error)
      )
    )
  }

  return {
    /** Begins with whatever is due, at every destination for itself. */
    round: Effect.gen(function* () {
      for (const { paused, ...way } of yield* pauses.ways) {
        for (let turns = 0; turns < (paused ? 1 : turnsAtOnce); turns++) {
          const name = `${way.orgId}/${way.destinationId}/${way.removing}/${turns}`
          yield* FiberMap.run(running, name, drain(way, paused), { onlyIfMissing: true })
        }
      }
    }),
    failing: pauses.failing,
    /** Copies for destinations that their database's policy does not name any more; those that are there stay. */
    tidy: Effect.gen(function* () {
      yield* asked(sql`
        with unwanted as materialized (
          select c.org_id, c.lineage, c.name, c.destination_id
          from backup_copy c join backup_lineage l on l.org_id = c.org_id and l.lineage = c.lineage
            join resource r on r.org_id = l.org_id and r.uid = l.database_uid and r.kind = 'Database'
              and r.deleted_at is null and r.deletion_requested_at is null
          where c.due_at is not null and c.stored_at is null and not c.removing
            and not coalesce(r.spec->'backup'->'destinationIds' ? c.destination_id::text, false)
        ), never as (
          delete from backup_copy c using unwanted u
          where c.org_id = u.org_id and c.lineage = u.lineage and c.name = u.name
            and c.destination_id = u.destination_id and c.version is null
        )
        -- Of what was begun something may be there.
        update backup_copy c set removing = true, tries = 0, lease = null, due_at = now() from unwanted u
        where c.org_id = u.org_id and c.lineage = u.lineage and c.name = u.name
          and c.destination_id = u.destination_id and c.version is not null`)
      yield* pauses.tidy
    })
  }
})
