/**
 * Brings objects to the destinations of their organizations, and takes them away there when their time has passed. A
 * destination that is slow or fails is tried again, later each time, and holds up no other.
 */
import { createHash } from "node:crypto"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as Metric from "effect/Metric"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { Db, repeatable } from "#src/store/Db.ts"
import { BackupOptions } from "./options.ts"
import { PlaceError } from "./Place.ts"
import { Remotes } from "./Remotes.ts"
import { Repository } from "./Repository.ts"

interface Due {
  readonly orgId: string
  readonly lineage: string
  readonly name: string
  readonly key: string
  readonly destinationId: string
  readonly version: number | null
  readonly removing: boolean
  readonly tries: number
  /** Of the object; absent when it is gone. */
  readonly sha256: string | null
}

/** Copies of one destination that are taken at a time, and how many of them at once. */
const batch = 16
const atOnce = 3
/** How long one object may take: a part of a backup over a slow line. */
const longest = "1 hour"
/** Renewed while somebody is at it; what a killed process had begun is begun again after this. */
const leaseSeconds = 60
const heartbeat = "20 seconds"

const outcomes = Metric.counter("svc_backup_copies_total", {
  description: "Objects brought to destinations, or removed there, by outcome",
  incremental: true
})

export const makeCopies = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  const remotes = yield* Remotes
  const repository = yield* Repository
  const options = yield* BackupOptions
  const running = yield* FiberMap.make<string>()

  const claim = (orgId: string, destinationId: string) =>
    repeatable(sql<Due>`
      with due as (
        select org_id, lineage, name, destination_id from backup_copy
        where org_id = ${orgId}::uuid and destination_id = ${destinationId}::uuid and due_at <= now()
        order by due_at limit ${batch}::int for update skip locked
      )
      update backup_copy c set due_at = now() + ${leaseSeconds}::int * interval '1 second'
      from due d where c.org_id = d.org_id and c.lineage = d.lineage and c.name = d.name
        and c.destination_id = d.destination_id
      returning c.org_id as "orgId", c.lineage, c.name, c.key, c.destination_id as "destinationId", c.version,
        c.removing, c.tries, (select o.stored_sha256 from backup_object o
          where o.org_id = c.org_id and o.lineage = c.lineage and o.name = c.name and o.key = c.key) as sha256`)

  const row = (one: Due) =>
    sql`org_id = ${one.orgId}::uuid and lineage = ${one.lineage}::uuid and name = ${one.name}
      and destination_id = ${one.destinationId}::uuid and key = ${one.key}`
  const forget = (one: Due) => repeatable(sql`delete from backup_copy where ${row(one)}`)

  /** What leaves is compared with what was recorded when it was made: a damaged disk spreads nothing. */
  const put = Effect.fnUntraced(function* (one: Due) {
    const { place, version } = yield* remotes.current(one.orgId, one.destinationId)
    const hash = createHash("sha256")
    const content = repository.local.get(one.key).pipe(
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
      )
    )
    yield* place.put(one.key, content)
    yield* repeatable(sql`
      update backup_copy set stored_at = now(), version = ${version}::int, error = null, tries = 0,
        due_at = case when removing then now() end
      where ${row(one)}`)
  })

  const remove = Effect.fnUntraced(function* (one: Due) {
    const place =
      one.version === null
        ? (yield* remotes.current(one.orgId, one.destinationId)).place
        : yield* remotes.at(one.orgId, one.destinationId, one.version)
    yield* place.remove([one.key])
    yield* forget(one)
  })

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
      : repeatable(sql`
          update backup_copy set tries = tries + 1, error = ${error.message}::text,
            due_at = now() + least(600, 2 ^ least(tries + 1, 10)) * (0.5 + random()) * interval '1 second'
          where ${row(one)}`)

  const carry = (one: Due) =>
    // What is gone here before it was copied is wanted nowhere.
    (one.removing ? remove(one) : one.sha256 === null ? forget(one) : put(one)).pipe(
      Effect.timeoutOrElse({
        duration: longest,
        orElse: () =>
          Effect.fail(new PlaceError({ reason: "timeout", message: "The destination took too long" }))
      }),
      Effect.tap(() => Metric.update(Metric.withAttributes(outcomes, { outcome: "ok" }), 1)),
      Effect.as(true),
      Effect.catchTag("PlaceError", (error) =>
        again(one, error).pipe(
          Effect.andThen(Metric.update(Metric.withAttributes(outcomes, { outcome: error.reason }), 1)),
          Effect.as(false)
        )
      )
    )

  /** Should it come late, two processes bring the same bytes to the same name. */
  const renew = (orgId: string, destinationId: string, held: ReadonlySet<Due>) =>
    repeatable(sql`
      update backup_copy c set due_at = now() + ${leaseSeconds}::int * interval '1 second'
      from jsonb_to_recordset(${sql.json([...held].map(({ lineage, name }) => ({ lineage, name })))}::jsonb)
        as h(lineage uuid, name text)
      where c.org_id = ${orgId}::uuid and c.destination_id = ${destinationId}::uuid and c.lineage = h.lineage
        and c.name = h.name and c.due_at is not null`)

  const drain = (orgId: string, destinationId: string) =>
    Effect.repeat(
      Effect.gen(function* () {
        const due = yield* claim(orgId, destinationId)
        const held = new Set(due)
        const beat = Effect.forever(
          Effect.andThen(Effect.sleep(heartbeat), Effect.ignore(renew(orgId, destinationId, held)))
        )
        const went = yield* Effect.forEach(
          due,
          (one) =>
            Effect.ensuring(
              carry(one),
              Effect.sync(() => held.delete(one))
            ),
          { concurrency: atOnce }
        ).pipe(Effect.raceFirst(beat))
        return due.length === batch && went.every(Boolean)
      }),
      { while: (more) => more, schedule: Schedule.forever }
    ).pipe(
      Effect.catchTag("StoreUnavailable", (error) =>
        Effect.logWarning("copies of backups could not be looked at", error)
      )
    )

  return {
    /** Begins with whatever is due, at every destination for itself. */
    round: Effect.gen(function* () {
      const due = yield* repeatable(sql<{ readonly orgId: string; readonly destinationId: string }>`
        select distinct org_id as "orgId", destination_id as "destinationId" from backup_copy
        where due_at <= now() limit 200`)
      yield* Effect.forEach(
        due,
        ({ orgId, destinationId }) =>
          FiberMap.run(running, `${orgId}/${destinationId}`, drain(orgId, destinationId), {
            onlyIfMissing: true
          }),
        { discard: true }
      )
    }),
    /** Histories that a destination did not take for some time, with what it said. */
    failing: repeatable(sql<{ readonly orgId: string; readonly lineage: string; readonly error: string }>`
      select distinct on (org_id, lineage) org_id as "orgId", lineage, error from backup_copy
      where not removing and stored_at is null and tries >= 3 and due_at is not null
      order by org_id, lineage, tries desc`)
  }
})
