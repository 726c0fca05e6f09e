/** Handlers of `backups.*` and `databases.listRecoveryPoints`. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { DatabaseSpec } from "#schemas/database.ts"
import { DatabaseBranchSpec } from "#schemas/database-branch.ts"
import { answer } from "#src/api/answer.ts"
import { passwordField, passwordOf } from "#src/api/credentials.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound, problem } from "#src/api/problem.ts"
import { targetRecord } from "#src/api/target.ts"
import { createdBefore, stored } from "#src/api/writing.ts"
import { branchView } from "#src/branches/view.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { BackupList, RecoveryPoints } from "./api.ts"
import { type JobRecord, Jobs } from "./Jobs.ts"
import { Ledger } from "./Ledger.ts"
import { Repository } from "./repository/Repository.ts"

/** Jobs that are shown; older ones are gone or of no interest. */
const most = 100

const storedSpec = Schema.decodeUnknownSync(DatabaseSpec)
const branchSpec = Schema.decodeUnknownSync(DatabaseBranchSpec)
const refOf = (record: ResourceRecord) => ({
  orgId: record.orgId,
  lineage: storedSpec(record.spec).lineage ?? record.uid
})

/** For operations that begin something. */
const theLivingDatabase = Effect.flatMap(targetRecord, (record) =>
  record.deletionRequestedAt === null
    ? Effect.succeed(record)
    : Effect.fail(problem(409, "being_deleted", "The database is being deleted"))
)

const views = Effect.gen(function* () {
  const ledger = yield* Ledger
  const allJobs = yield* Jobs
  return Effect.fnUntraced(function* (orgId: string, jobs: ReadonlyArray<JobRecord>) {
    const [first] = jobs
    const drills =
      first === undefined
        ? []
        : yield* Effect.mapError(allJobs.list(orgId, first.databaseUid, "drill", most), fromStore)
    const whereabouts = yield* Effect.mapError(
      ledger.whereabouts(
        orgId,
        jobs.map(({ id }) => id)
      ),
      fromStore
    )
    return jobs.map((job) => {
      const where = whereabouts.find(({ backupId }) => backupId === job.id)
      const drill = drills.find(({ backupId }) => backupId === job.id)
      const local = where !== undefined && job.status === "succeeded"
      return {
        id: job.id,
        databaseId: job.databaseUid,
        status: job.status,
        reason: job.reason,
        createdAt: job.createdAt.toISOString(),
        startedAt: job.startedAt?.toISOString() ?? null,
        finishedAt: job.finishedAt?.toISOString() ?? null,
        step: job.step,
        progressPercent: progressOf(job),
        sizeBytes: job.bytesTotal,
        storedBytes: job.storedBytes,
        recoverableFrom: job.consistentAt?.toISOString() ?? null,
        locations: [
          ...(local ? [{ kind: "local" as const, destinationId: null, version: null, complete: true }] : []),
          ...(where?.destinations ?? []).map(({ destinationId, version, objects }) => ({
            kind: "destination" as const,
            destinationId,
            version,
            complete: job.status === "succeeded" && objects === where?.objects
          }))
        ],
        lastProvenAt: job.provenAt?.toISOString() ?? null,
        drill: drill === undefined ? null : { status: drill.status, error: drill.error },
        error: job.error
      }
    })
  })
})

/** Whole only when it is recorded as such: after the copy the log has to come in. */
const progressOf = ({ status, bytesDone, bytesTotal }: JobRecord): number =>
  status === "succeeded"
    ? 100
    : bytesTotal === 0
      ? 0
      : Math.min(99, Math.floor((100 * bytesDone) / bytesTotal))

export const layerDatabases = HttpApiBuilder.group(
  Api,
  "databases",
  Effect.fnUntraced(function* (handlers) {
    const jobs = yield* Jobs
    const ledger = yield* Ledger
    const repository = yield* Repository
    const viewed = yield* views
    return handlers.handleAll(
      handlersOf(Api.groups.databases)({
        listRecoveryPoints: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const ref = refOf(yield* targetRecord)
          const bases = yield* Effect.mapError(jobs.bases(orgId, ref.lineage), fromStore)
          const windows = yield* Effect.mapError(repository.windows(ref), fromStore)
          const trouble = Option.getOrUndefined(yield* Effect.mapError(ledger.trouble(ref), fromStore))
          const newest = bases.at(-1)?.consistentAt
          const proven = bases.flatMap(({ provenAt }) => (provenAt === null ? [] : [+provenAt]))
          const now = yield* Clock.currentTimeMillis
          return answer(RecoveryPoints, {
            at: new Date(now).toISOString(),
            windows: windows.map(({ from, to }) => ({ from: from.toISOString(), to: to.toISOString() })),
            backups: yield* viewed(orgId, bases.toReversed()),
            newestBackupAgeSeconds: newest == null ? null : Math.max(0, Math.floor((now - +newest) / 1000)),
            lastProvenAt: proven.length === 0 ? null : new Date(Math.max(...proven)).toISOString(),
            archiving: {
              ok: trouble === undefined,
              reason: trouble?.reason ?? null,
              message: trouble?.message ?? null
            }
          })
        })
      })
    )
  })
)

export const layerBackups = HttpApiBuilder.group(
  Api,
  "backups",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const jobs = yield* Jobs
    const repository = yield* Repository
    const viewed = yield* views

    return handlers.handleAll(
      handlersOf(Api.groups.backups)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const { uid } = yield* targetRecord
          const records = yield* Effect.mapError(jobs.list(orgId, uid, "backup", most), fromStore)
          return answer(BackupList, yield* viewed(orgId, records))
        }),
        create: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const database = yield* theLivingDatabase
          const made = yield* Effect.mapError(
            jobs.queue(
              {
                ...refOf(database),
                kind: "backup",
                databaseUid: database.uid,
                backupId: null,
                reason: "request",
                drill: payload?.drill ?? false
              },
              { ...caller.actor, outcome: 202 },
              reservation
            ),
            fromStore
          )
          const [view] = yield* viewed(orgId, [made])
          return view ?? (yield* notFound("backup"))
        }),
        restore: Effect.fnUntraced(function* ({ payload }) {
          const before = yield* createdBefore
          if (before !== undefined) return branchView(before)
          const { orgId, caller, reservation } = yield* RequestScope
          const database = yield* theLivingDatabase
          const spec = storedSpec(database.spec)
          const now = yield* Clock.currentTimeMillis
          const at = "pointInTime" in payload ? new Date(payload.pointInTime) : undefined
          const wanted =
            "backupId" in payload
              ? ({ kind: "backup", backupId: payload.backupId } as const)
              : ({ kind: "time", at: at ?? new Date(now) } as const)
          yield* repository.reach(refOf(database), database.uid, wanted).pipe(
            Effect.catchTag("OutsideWindow", (outside) => {
              const pointer = wanted.kind === "backup" ? "/backupId" : "/pointInTime"
              return Effect.fail(
                problem(422, "outside_recovery_window", outside.message, {
                  errors: [{ pointer, message: "cannot be restored" }]
                })
              )
            }),
            Effect.catchTag("StoreUnavailable", (error) => Effect.fail(fromStore(error)))
          )
          const place = yield* Effect.mapError(
            resources.place(orgId, database.projectId ?? "", database.environment ?? ""),
            fromStore
          )
          const { uid } = reservation
          yield* stored(
            resources.write(
              orgId,
              [
                {
                  action: "create",
                  uid,
                  kind: "DatabaseBranch",
                  projectId: database.projectId,
                  environment: database.environment,
                  name: payload.name ?? `restore-${now.toString(36)}`,
                  parentUid: Option.getOrUndefined(place)?.environmentUid ?? null,
                  spec: branchSpec({
                    sourceEnvironment: database.environment,
                    sourceDatabase: database.name,
                    sourceDatabaseId: database.uid,
                    source:
                      wanted.kind === "backup"
                        ? wanted
                        : { kind: "point_in_time", pointInTime: wanted.at.toISOString() },
                    region: spec.region,
                    sku: spec.sku,
                    promoteWhenReady: true
                  }),
                  managedBy: "api",
                  secrets: { [passwordField]: passwordOf(reservation) }
                }
              ],
              { ...caller.actor, outcome: 202 }
            )
          )
          const found = yield* Effect.mapError(resources.get(orgId, uid), fromStore)
          return Option.isSome(found) ? branchView(found.value) : yield* notFound("branch")
        })
      })
    )
  })
)
