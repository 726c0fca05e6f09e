import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { BackupList, BackupView, RecoveryPoints } from "#src/backups/api.ts"
import { BranchView } from "#src/branches/api.ts"
import { fits, untilAnswer } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { uuid } from "#test/setup/fixtures.ts"

const project = "/v1/orgs/main/projects/shop"

const pause = Effect.fn(function* (kind: string) {
  const { call } = yield* Plane
  const body = { scope: "kind", target: kind, reason: "looking" }
  assert.strictEqual((yield* call("POST", "/v1/orgs/main/pauses", { body })).status, 202)
})

layer(testPlane(), { excludeTestServices: true })("backups", (it) => {
  it.effect(
    "are made at once and on request, listed with where they are, and show what can be restored",
    () =>
      Effect.gen(function* () {
        const { call, session, tenant } = yield* Plane
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
        assert.strictEqual((yield* call("POST", `${project}/database`)).status, 201)
        const id: string = (yield* call("GET", `${project}/database`)).body.id
        const database = `${project}/databases/${id}`
        const points = call("GET", `${database}/recovery-points`)

        // The first one needs nobody to ask for it.
        const first = yield* untilAnswer(
          points,
          ({ body }) => body.backups?.length === 1 && body.windows.length === 1
        )
        yield* fits(RecoveryPoints, first.body)
        const { windows, backups, archiving, newestBackupAgeSeconds } = first.body
        assert.deepStrictEqual(archiving, { ok: true, reason: null, message: null })
        assert.isAtMost(newestBackupAgeSeconds, 300)
        assert.isAtLeast(Date.parse(windows[0].to), Date.parse(windows[0].from))
        assert.deepStrictEqual(backups[0].locations, [
          { kind: "local", destinationId: null, version: null, complete: true }
        ])
        assert.deepStrictEqual(
          [backups[0].status, backups[0].reason, backups[0].progressPercent],
          ["succeeded", "first", 100]
        )
        assert.isAbove(backups[0].sizeBytes, backups[0].storedBytes)

        const key = { "idempotency-key": "once" }
        const made = yield* call("POST", `${database}/backups`, { body: { drill: true }, headers: key })
        assert.strictEqual(made.status, 202, made.text)
        yield* fits(BackupView, made.body)
        assert.isNull(made.body.lastProvenAt)
        const again = yield* call("POST", `${database}/backups`, { body: { drill: true }, headers: key })
        assert.deepStrictEqual([again.status, again.body.id], [202, made.body.id])
        const listed = yield* untilAnswer(
          call("GET", `${database}/backups`),
          ({ body }) => body[0].status === "succeeded"
        )
        yield* fits(BackupList, listed.body)
        assert.deepStrictEqual([listed.body.length, listed.body[0].id], [2, made.body.id])
        const proven = yield* untilAnswer(points, ({ body }) => body.backups[0].lastProvenAt !== null)
        assert.strictEqual(proven.body.backups[0].id, made.body.id)
        assert.isAtLeast(
          Date.parse(proven.body.lastProvenAt),
          Date.parse(proven.body.backups[0].lastProvenAt)
        )

        // Restoring: refused before anything is written when it cannot be.
        const restore = (body: object, token = session) =>
          call("POST", `${database}/backups/restore`, { body, token })
        const tooEarly = yield* restore({ pointInTime: "2020-01-01T00:00:00Z" })
        assert.deepStrictEqual(
          [tooEarly.status, tooEarly.body.code, tooEarly.body.errors[0].pointer],
          [422, "outside_recovery_window", "/pointInTime"]
        )
        assert.include(tooEarly.body.detail, windows[0].from)
        const tooLate = yield* restore({ pointInTime: new Date(Date.now() + 3_600_000).toISOString() })
        assert.deepStrictEqual([tooLate.status, tooLate.body.code], [422, "outside_recovery_window"])
        const unknown = yield* restore({ backupId: uuid() })
        assert.deepStrictEqual([unknown.status, unknown.body.errors[0].pointer], [422, "/backupId"])
        for (const body of [
          {},
          { pointInTime: "yesterday" },
          { backupId: "x" },
          { pointInTime: "2026-02-31T99:00:00Z" }
        ]) {
          assert.strictEqual((yield* restore(body)).status, 422, JSON.stringify(body))
        }
        assert.deepStrictEqual((yield* call("GET", `${database}/branches`)).body, [])
        const other = yield* tenant()
        assert.strictEqual((yield* restore({ backupId: made.body.id }, other.owner)).status, 404)
        for (const path of ["backups", "recovery-points"]) {
          assert.strictEqual((yield* call("GET", `${project}/databases/${uuid()}/${path}`)).status, 404)
          assert.strictEqual((yield* call("GET", `${project}/databases/main/${path}`)).status, 404)
        }

        // A moment of just now: the log is brought in first. It is asked for and not done here.
        yield* pause("DatabaseBranch")
        const now = new Date().toISOString()
        const accepted = yield* restore({ pointInTime: now, name: "back" })
        assert.strictEqual(accepted.status, 202, accepted.text)
        yield* fits(BranchView, accepted.body)
        assert.deepStrictEqual(accepted.body.source, {
          kind: "point_in_time",
          backupId: null,
          pointInTime: now
        })
        const clash = yield* restore({ pointInTime: now, name: "back" })
        assert.deepStrictEqual([clash.status, clash.body.code], [409, "name_taken"])
      }),
    900_000
  )

  it.effect("are not begun for a database that is being deleted", () =>
    Effect.gen(function* () {
      const { call, session, sql } = yield* Plane
      const id: string = (yield* call("GET", `${project}/database`)).body.id
      const database = `${project}/databases/${id}`
      // What is paused stays.
      yield* pause("Database")
      yield* sql(`update resource set deletion_requested_at = now() where uid = '${id}'`)
      const made = yield* call("POST", `${database}/backups`)
      assert.deepStrictEqual([made.status, made.body.code], [409, "being_deleted"])
      const back = yield* call("POST", `${database}/backups/restore`, {
        token: session,
        body: { pointInTime: new Date().toISOString() }
      })
      assert.deepStrictEqual([back.status, back.body.code], [409, "being_deleted"])
    })
  )
})
