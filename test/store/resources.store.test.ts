import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { Db, inOrg } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { Secrets } from "#src/store/Secrets.ts"
import { testDb } from "#test/setup/database.ts"
import { actor, cacheChange, makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

const Store = Layer.mergeAll(Resources.layer, Secrets.layer).pipe(
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb())
)

layer(Store, { excludeTestServices: true })("resources", (it) => {
  it.effect("a created resource can be read, with its project and its queue entry", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      const change = cacheChange(place, "sessions")
      const [written] = yield* resources.write(org.id, [change], actor)
      assert.strictEqual(written?.generation, 1)
      const record = Option.getOrThrow(yield* resources.get(org.id, change.uid))
      assert.strictEqual(record.project, "shop")
      assert.strictEqual(record.phase, "pending")
      assert.strictEqual(record.revision, written?.revision)
      assert.deepStrictEqual(record.spec, change.spec)
      assert.isNotNull(record.nextAttemptAt)
      const events = yield* resources.events(org.id, change.uid, 10)
      assert.deepStrictEqual(
        events.map((event) => event.reason),
        ["Created"]
      )
    })
  )

  it.effect("generation rises with every change of the specification and with nothing else", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const change = cacheChange(yield* makeProject(org.id, "shop"), "sessions")
      yield* resources.write(org.id, [change], actor)
      const same = yield* resources.write(
        org.id,
        [{ action: "update", uid: change.uid, spec: change.spec }],
        actor
      )
      assert.strictEqual(same[0]?.generation, 1)
      const spec = {
        ...(cacheChange({ projectId: "", production: "" }, "x").spec as object),
        sku: "cache-s1"
      }
      const changed = yield* resources.write(org.id, [{ action: "update", uid: change.uid, spec }], actor)
      assert.strictEqual(changed[0]?.generation, 2)
    })
  )

  it.effect("what lists show of a kind is what its records say", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      const [failed, ready] = [cacheChange(place, "failed"), cacheChange(place, "ready")]
      yield* resources.write(org.id, [failed, ready], actor)
      const { engine: sql } = yield* Db
      yield* sql`update resource set phase = case name when 'ready' then 'ready' else 'failed' end,
        conditions = '[{"type": "Ready", "status": "false", "reason": "Failed", "message": "no", "observedGeneration": 1,
          "lastTransitionAt": "2026-01-01T00:00:00.000Z"}, {"type": "Newer", "shape": "of another version"}]'
        where org_id = ${org.id} and kind = 'Cache'`
      yield* sql`update work set last_error = 'no room' where org_id = ${org.id} and kind = 'Cache'`
      const shown = yield* resources.showKind(org.id, "Cache", place.projectId, "production")
      const records = yield* resources.listKind(org.id, "Cache", place.projectId, "production")
      assert.deepStrictEqual(
        shown.map(({ name, phase, lastError }) => [name, phase, lastError]),
        [
          ["failed", "failed", "no room"],
          ["ready", "ready", null]
        ]
      )
      for (const [index, one] of shown.entries()) {
        const { lastError: _, ...rest } = one
        const { name, conditions } = one
        assert.deepStrictEqual([name, conditions.length], [records[index]?.name, 1])
        for (const [key, value] of Object.entries(rest))
          assert.deepStrictEqual(records[index]?.[key as keyof typeof rest], value, key)
      }
      const other = yield* makeOrganization()
      assert.deepStrictEqual(yield* resources.showKind(other.id, "Cache", place.projectId), [])
      assert.deepStrictEqual(yield* resources.showKind(org.id, "Cache", null), [])
    })
  )

  it.effect("a taken name is refused and nothing of the batch is stored", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      yield* resources.write(org.id, [cacheChange(place, "one")], actor)
      const error = yield* Effect.flip(
        resources.write(org.id, [cacheChange(place, "two"), cacheChange(place, "one")], actor)
      )
      assert.strictEqual(error._tag, "NameTaken")
      const names = (yield* resources.listKind(org.id, "Cache", place.projectId)).map((record) => record.name)
      assert.deepStrictEqual(names, ["one"])
    })
  )

  it.effect("an update against an old revision is refused and takes the rest of its batch with it", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      const change = cacheChange(place, "one")
      const [written] = yield* resources.write(org.id, [change], actor)
      yield* resources.write(org.id, [{ action: "update", uid: change.uid, spec: { changed: 1 } }], actor)
      const error = yield* Effect.flip(
        resources.write(
          org.id,
          [
            cacheChange(place, "two"),
            { action: "update", uid: change.uid, spec: { changed: 2 }, expectedRevision: written!.revision }
          ],
          actor
        )
      )
      assert.strictEqual(error._tag, "RevisionConflict")
      assert.strictEqual((yield* resources.listKind(org.id, "Cache", place.projectId)).length, 1)
    })
  )

  it.effect(
    "deleting a container asks for deletion of everything in it, unless something there is protected",
    () =>
      Effect.gen(function* () {
        const resources = yield* Resources
        const org = yield* makeOrganization()
        const place = yield* makeProject(org.id, "shop")
        const change = cacheChange(place, "one")
        yield* resources.write(org.id, [change], actor)
        yield* resources.protect(org.id, change.uid, true, actor)
        const refused = yield* Effect.flip(
          resources.write(org.id, [{ action: "delete", uid: place.projectId }], actor)
        )
        assert.strictEqual(refused._tag, "Refused")
        assert.include(refused.message, 'Cache "one"')
        yield* resources.protect(org.id, change.uid, false, actor)
        yield* resources.write(org.id, [{ action: "delete", uid: place.projectId }], actor)
        const all = yield* resources.all(org.id)
        assert.strictEqual(all.length, 4)
        assert.isTrue(
          all.every((record) => record.phase === "deleting" && record.deletionRequestedAt !== null)
        )
        const late = yield* Effect.flip(resources.write(org.id, [cacheChange(place, "late")], actor))
        assert.strictEqual(late._tag, "Refused")
      })
  )

  it.effect("another organization sees nothing, whatever it asks for", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const other = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      const change = cacheChange(place, "one")
      yield* resources.write(org.id, [change], actor)
      assert.isTrue(Option.isNone(yield* resources.get(other.id, change.uid)))
      assert.isTrue(Option.isNone(yield* resources.place(other.id, "shop", "production")))
      assert.deepStrictEqual(yield* resources.all(other.id), [])
      const update = yield* Effect.flip(
        resources.write(other.id, [{ action: "update", uid: change.uid, spec: {} }], actor)
      )
      assert.strictEqual(update._tag, "NotFound")
    })
  )

  it.effect("row-level security hides other organizations even from a query that forgets to ask", () =>
    Effect.gen(function* () {
      const { api: sql } = yield* Db
      const org = yield* makeOrganization()
      const other = yield* makeOrganization()
      yield* makeProject(org.id, "shop")
      const count = (gate: ReturnType<typeof inOrg>) =>
        Effect.map(
          sql<{ readonly n: number }>`select count(*)::int as n from resource where ${gate}`,
          ([row]) => row?.n
        )
      assert.strictEqual(yield* count(inOrg(sql, org.id)), 3)
      assert.strictEqual(yield* count(inOrg(sql, other.id)), 0)
      assert.strictEqual(yield* count(sql`true`), 0)
      const forged = yield* Effect.flip(
        sql`insert into work (org_id, uid, kind) select ${org.id}::uuid, ${uuid()}::uuid, 'Cache' where ${inOrg(sql, other.id)}`
      )
      assert.strictEqual(forged.reason._tag, "AuthorizationError")
      const hidden = yield* Effect.flip(sql`select * from platform_secret`)
      assert.strictEqual(hidden.reason._tag, "AuthorizationError")
    })
  )

  it.effect("a secret is sealed at rest and opens only where it belongs", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const secrets = yield* Secrets
      const { engine: sql } = yield* Db
      const org = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      const canary = "canary-value-of-a-secret"
      const change = { ...cacheChange(place, "one"), secrets: { password: Redacted.make(canary) } }
      yield* resources.write(org.id, [change], actor)
      const ref = { orgId: org.id, uid: change.uid, field: "password" }
      const value = Option.getOrThrow(yield* secrets.read(ref))
      assert.strictEqual(Redacted.value(value), canary)
      const moved = uuid()
      yield* sql`insert into secret (org_id, uid, field, key_id, sealed)
        select org_id, ${moved}::uuid, field, key_id, sealed from secret where uid = ${change.uid}::uuid`
      const error = yield* Effect.flip(secrets.read({ ...ref, uid: moved }))
      assert.include(error.message, "does not open")
    })
  )

  it.effect("lists page by page without loss or repeat, and filter by phase, kind and readiness", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const org = yield* makeOrganization()
      const place = yield* makeProject(org.id, "shop")
      yield* resources.write(
        org.id,
        Array.from({ length: 7 }, (_, i) => cacheChange(place, `cache-${i}`)),
        actor
      )
      const seen: Array<string> = []
      let after: { createdAt: string; uid: string } | undefined
      for (;;) {
        const page = yield* resources.list(org.id, {}, 4, after)
        seen.push(...page.map((record) => record.uid))
        const last = page.at(-1)
        if (page.length < 4 || last === undefined) break
        after = { createdAt: last.createdAt.toISOString(), uid: last.uid }
      }
      assert.strictEqual(seen.length, 10)
      assert.strictEqual(new Set(seen).size, 10)
      assert.strictEqual((yield* resources.list(org.id, { kind: "Cache", ready: false }, 100)).length, 7)
      assert.strictEqual((yield* resources.list(org.id, { ready: true }, 100)).length, 0)
      assert.strictEqual((yield* resources.list(org.id, { phase: "ready" }, 100)).length, 0)
    })
  )
})
