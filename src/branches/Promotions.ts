/**
 * Promoting a branch: one transaction says that the database's data comes from the branch from now on, that the branch
 * gives it away, and which new branch keeps what was there. The reconciler of the database moves the folders.
 */
import { randomBytes, randomUUIDv7 } from "node:crypto"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { Database } from "#schemas/database.ts"
import { type DatabaseBranchSpec, expiryOf } from "#schemas/database-branch.ts"
import type { Change } from "#src/store/change.ts"
import type { NameTaken, NotFound, RevisionConflict } from "#src/store/errors.ts"
import { Refused } from "#src/store/errors.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor, ResourceRecord } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import { decodeBranch, sourceOf } from "./view.ts"

/** Days that the replaced data is kept, unless somebody changes it. */
const keptDays = 7
/** A branch that expires meanwhile would take its data with it. */
const expiringMs = 120_000

const decodeDatabase = Schema.decodeUnknownSync(
  Schema.Struct({ spec: Database.spec, status: Schema.NullOr(Database.status) })
)

export class Promotions extends Context.Service<
  Promotions,
  {
    readonly promote: (
      branch: ResourceRecord,
      actor: Actor
    ) => Effect.Effect<void, NameTaken | NotFound | RevisionConflict | Refused | StoreUnavailable>
    /** It is not promoted when it is ready any more, for a reason that does not pass; the branch says so. */
    readonly giveUp: (
      branch: ResourceRecord,
      why: NonNullable<DatabaseBranchSpec["promotionRefused"]>,
      actor: Actor
    ) => Effect.Effect<void, NameTaken | NotFound | RevisionConflict | Refused | StoreUnavailable>
    /**
     * Takes back the promotion of a branch whose data was lost before anything was moved: the database goes on with
     * its own. What was to keep that stays as it is; it may hold it.
     */
    readonly callOff: (
      branch: ResourceRecord,
      actor: Actor
    ) => Effect.Effect<void, NameTaken | NotFound | RevisionConflict | Refused | StoreUnavailable>
  }
>()("svc/branches/Promotions") {
  static readonly layer = Layer.effect(
    Promotions,
    Effect.gen(function* () {
      const resources = yield* Resources
      return Promotions.of({
        promote: Effect.fn("Promotions.promote")(function* (branch, actor) {
          const { orgId, uid } = branch
          const { spec: before, status } = decodeBranch(branch)
          const { promotionRefused: _refused, ...spec } = before
          if (spec.promotedTo !== undefined)
            return yield* refuse("already_promoted", `The branch "${branch.name}" was promoted already`)
          if (status?.state !== "ready" || branch.phase !== "ready")
            return yield* refuse("not_ready", `The branch "${branch.name}" is not ready`)
          const expiry = expiryOf(uid, spec)
          if (expiry !== undefined && expiry < (yield* Clock.currentTimeMillis) + expiringMs)
            return yield* refuse("expiring", `The branch "${branch.name}" is just expiring; extend it first`)
          const found = yield* resources.get(orgId, sourceOf(branch) ?? uid)
          if (Option.isNone(found) || found.value.kind !== "Database")
            return yield* refuse("no_database", "The database that it is a branch of is gone")
          const database = found.value
          const current = decodeDatabase({ spec: database.spec, status: database.status })
          const lineage = current.spec.lineage ?? database.uid
          if (current.status === null || (current.status.lineage ?? database.uid) !== lineage)
            return yield* refuse("promotion_in_progress", "Another promotion to this database is under way")
          const kept: typeof DatabaseBranchSpec.Type = {
            ...spec,
            sourceEnvironment: database.environment ?? spec.sourceEnvironment,
            sourceDatabase: database.name,
            sourceDatabaseId: database.uid,
            source: { kind: "replaced" },
            sku: current.spec.sku,
            region: current.spec.region,
            expiresInDays: keptDays,
            credentialVersion: 1,
            promoteWhenReady: false,
            deleteOnPreviewClose: false
          }
          const { expiresFrom: _, ...fromItsCreation } = kept
          const keptAs = randomUUIDv7()
          yield* resources.write(
            orgId,
            [
              {
                action: "update",
                uid: database.uid,
                spec: { ...current.spec, lineage: uid, keptAs },
                expectedGeneration: database.generation
              },
              {
                action: "update",
                uid,
                spec: { ...spec, promotedTo: database.uid, promoteWhenReady: false },
                expectedGeneration: branch.generation
              },
              {
                action: "create",
                uid: keptAs,
                kind: "DatabaseBranch",
                projectId: database.projectId,
                environment: database.environment,
                // Names of resources are unique; which promotion it was is told by its time.
                name: `${database.name.slice(0, 40)}-before-${randomBytes(4).toString("hex")}`,
                parentUid: database.parentUid,
                spec: fromItsCreation,
                managedBy: "api",
                secrets: { password: Redacted.make(randomBytes(24).toString("base64url")) }
              }
            ],
            actor
          )
        }),

        giveUp: Effect.fn("Promotions.giveUp")(function* ({ orgId, uid, generation, ...branch }, why, actor) {
          const spec = { ...decodeBranch(branch).spec, promoteWhenReady: false, promotionRefused: why }
          yield* resources.write(
            orgId,
            [{ action: "update", uid, spec, expectedGeneration: generation }],
            actor
          )
        }),

        callOff: Effect.fn("Promotions.callOff")(function* ({ orgId, uid, generation, ...branch }, actor) {
          const { promotedTo, ...spec } = decodeBranch(branch).spec
          if (promotedTo === undefined) return
          const changes: Array<Change> = [{ action: "update", uid, spec, expectedGeneration: generation }]
          const database = Option.getOrUndefined(yield* resources.get(orgId, promotedTo))
          if (database?.kind === "Database") {
            const now = decodeDatabase({ spec: database.spec, status: database.status })
            const { lineage, keptAs: _, ...rest } = now.spec
            const own = now.status?.lineage ?? promotedTo
            // The data has come: what became of it since is no matter of the promotion.
            if (own === uid) return
            if (lineage === uid)
              changes.push({
                action: "update",
                uid: promotedTo,
                spec: { ...rest, ...(own === promotedTo ? {} : { lineage: own }) },
                expectedGeneration: database.generation
              })
          }
          yield* resources.write(orgId, changes, actor)
        })
      })
    })
  )
}

const refuse = (code: string, message: string) => new Refused({ code, message })
