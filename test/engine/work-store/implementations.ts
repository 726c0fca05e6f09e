/** The two implementations of the engine's store, each with the other sides that tests need: users, time, and a look inside. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { WorkStore } from "#src/engine/WorkStore.ts"
import { Db } from "#src/store/Db.ts"
import { Interventions } from "#src/store/Interventions.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import * as Work from "#src/store/Work.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, makeOrganization, uuid } from "#test/setup/fixtures.ts"
import { MemoryStore, workStore } from "../memory-work-store.ts"
import { type Stored, StoreUnderTest } from "./setting.ts"

export const memory = Layer.unwrap(
  Effect.sync(() => {
    let now = 1_800_000_000_000
    const store = new MemoryStore(() => now)
    const underTest = StoreUnderTest.of({
      makeOrganization: Effect.sync(uuid),
      create: (orgId, resource) => Effect.sync(() => assert.isTrue(store.create({ ...resource, orgId }))),
      update: (_orgId, uid, spec) => Effect.sync(() => assert.isTrue(store.update(uid, spec))),
      delete: (_orgId, uid) => Effect.sync(() => assert.isTrue(store.delete(uid))),
      retry: (_orgId, uid) => Effect.sync(() => store.retry(uid)),
      pause: (orgId, target, forMs) => Effect.sync(() => store.pause(orgId, target, forMs)),
      resume: (orgId, target) => Effect.sync(() => store.resume(orgId, target)),
      spare: (_orgId, uid) =>
        Effect.sync(() => {
          store.resources.get(uid)!.deleting = false
        }),
      advance: (ms) =>
        Effect.sync(() => {
          now += ms
        }),
      stored: (_orgId, uid) =>
        Effect.sync((): Stored => {
          const resource = store.resources.get(uid)
          const work = store.work.get(uid)
          return {
            resource:
              resource === undefined
                ? null
                : {
                    generation: resource.generation,
                    revision: resource.revision,
                    status: resource.status,
                    phase: resource.phase,
                    observedGeneration: resource.observedGeneration,
                    deleting: resource.deleting
                  },
            work:
              work === undefined
                ? null
                : {
                    dueIn: work.dueAt - now,
                    leased: work.leaseToken !== null,
                    attempt: work.attempt,
                    lastError: work.lastError,
                    waitingOn: work.waitingOn,
                    handledRetry: work.handledRetry
                  },
            secrets: resource?.secrets.size ?? 0
          }
        })
    })
    return Layer.merge(Layer.succeed(WorkStore, workStore(store)), Layer.succeed(StoreUnderTest, underTest))
  })
)

/** Time moves by moving everything that is stored into the past. */
const postgresUnderTest = Layer.effect(
  StoreUnderTest,
  Effect.gen(function* () {
    const database = yield* Db
    const sql = database.engine
    const resources = yield* Resources
    const interventions = yield* Interventions
    return StoreUnderTest.of({
      makeOrganization: makeOrganization().pipe(
        Effect.map((org) => org.id),
        Effect.provideService(Db, database)
      ),
      create: (orgId, { secrets, ...resource }) =>
        resources
          .write(
            orgId,
            [
              {
                ...resource,
                action: "create",
                environment: null,
                managedBy: "api",
                secrets: Object.fromEntries(secrets.map((field) => [field, Redacted.make("value")]))
              }
            ],
            actor
          )
          .pipe(Effect.orDie, Effect.asVoid),
      update: (orgId, uid, spec) =>
        Effect.asVoid(Effect.orDie(resources.write(orgId, [{ action: "update", uid, spec }], actor))),
      delete: (orgId, uid) =>
        Effect.asVoid(Effect.orDie(resources.write(orgId, [{ action: "delete", uid }], actor))),
      retry: (orgId, uid) => Effect.orDie(interventions.retry(orgId, uid, actor)),
      pause: (orgId, target, forMs) =>
        Effect.orDie(
          Effect.suspend(() => {
            const until = forMs === null ? null : new Date(Date.now() + forMs)
            return interventions.pause(orgId, { ...target, reason: "a reason", until }, actor)
          })
        ),
      resume: (orgId, target) => Effect.orDie(interventions.resume(orgId, target, actor)),
      spare: (orgId, uid) =>
        Effect.asVoid(
          Effect.orDie(
            sql`update resource set deletion_requested_at = null where org_id = ${orgId}::uuid and uid = ${uid}::uuid`
          )
        ),
      advance: (ms) => {
        const step = sql`${ms}::float8 * interval '1 millisecond'`
        return Effect.orDie(
          Effect.all(
            [
              sql`update work set due_at = due_at - ${step}, rank = rank - ${step}, lease_until = lease_until - ${step}`,
              sql`update resource set phase_since = phase_since - ${step}`,
              sql`update pause set until = until - ${step}`,
              sql`update engine_process set lease_until = lease_until - ${step}`
            ],
            { discard: true }
          )
        )
      },
      stored: (orgId, uid) =>
        Effect.gen(function* () {
          const [resource] = yield* sql<NonNullable<Stored["resource"]>>`
            select generation, revision, status, phase, observed_generation as "observedGeneration",
              deletion_requested_at is not null as deleting
            from resource where org_id = ${orgId}::uuid and uid = ${uid}::uuid and deleted_at is null`
          const [work] = yield* sql<NonNullable<Stored["work"]>>`
            select (extract(epoch from due_at - now()) * 1000)::float8 as "dueIn", lease_token is not null as leased,
              attempt, last_error as "lastError", waiting_on as "waitingOn", handled_retry as "handledRetry"
            from work where org_id = ${orgId}::uuid and uid = ${uid}::uuid`
          const secrets = yield* sql`select from secret where org_id = ${orgId}::uuid and uid = ${uid}::uuid`
          return { resource: resource ?? null, work: work ?? null, secrets: secrets.length }
        }).pipe(Effect.orDie)
    })
  })
)

export const postgres = Layer.mergeAll(postgresUnderTest, Work.layer).pipe(
  Layer.provideMerge(Layer.merge(Resources.layer, Interventions.layer)),
  Layer.provide(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)
