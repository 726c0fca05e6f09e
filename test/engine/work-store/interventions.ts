/** Promises about what people do while the engine works: delete, pause, retry. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { PauseTarget } from "#src/store/Interventions.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { type It, only, result, setting, slack } from "./setting.ts"

export const interventionTests = (it: It): void => {
  it.effect("deletion asked for during a run is not overwritten by what the run records", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, take, claim, stored } = yield* setting
      const uid = yield* make()
      const unaware = yield* take(uid)
      yield* store.delete(orgId, uid)
      yield* work.record([result(unaware)])
      const { resource } = yield* stored(uid)
      assert.strictEqual(resource?.phase, "deleting")
      assert.isTrue(resource?.deleting)
      const next = only(yield* claim())
      assert.isTrue(next.deleting)
      assert.isFalse(next.settled)
      assert.deepStrictEqual(next.children, { count: 0, notDeleting: 0, first: "" })
    })
  )

  it.effect("what slipped into a container that is being deleted is deleted with it", () =>
    Effect.gen(function* () {
      const { work, store, orgId, kind, make, take, claimUids, stored } = yield* setting
      const parent = yield* make()
      const idle = yield* make({ parentUid: parent, name: "idle" })
      const busy = yield* make({ parentUid: parent, name: "busy" })
      yield* store.delete(orgId, parent)
      for (const uid of [idle, busy]) {
        yield* store.spare(orgId, uid)
        yield* work.record([result(yield* take(uid))])
      }
      const running = yield* take(busy)
      const above = yield* take(parent)
      assert.deepStrictEqual(above.children, { count: 2, notDeleting: 2, first: `${kind} "busy"` })
      yield* work.cascade(orgId, parent)
      assert.deepStrictEqual(yield* claimUids(), [idle])
      yield* work.record([result(running)])
      assert.deepStrictEqual(yield* claimUids(), [busy])
      assert.isTrue((yield* stored(busy)).resource?.deleting)
      assert.strictEqual((yield* stored(busy)).resource?.phase, "deleting")
    })
  )

  it.effect("a pause is seen by the next run, whatever it covers, until it ends", () =>
    Effect.gen(function* () {
      const { work, store, orgId, kind, make, claim } = yield* setting
      const projectId = uuid()
      const uid = yield* make({ projectId })
      yield* work.record([result(only(yield* claim()))])
      const targets: ReadonlyArray<PauseTarget> = [
        { scope: "resource", target: uid },
        { scope: "project", target: projectId },
        { scope: "kind", target: kind },
        { scope: "organization", target: "" }
      ]
      for (const target of targets) {
        yield* store.pause(orgId, target, null)
        const paused = only(yield* claim())
        assert.isNull(paused.paused?.endsIn, target.scope)
        assert.isString(paused.paused?.by)
        assert.isString(paused.paused?.reason)
        yield* work.record([result(paused)])
        yield* store.resume(orgId, target)
        const resumed = only(yield* claim())
        assert.isNull(resumed.paused, target.scope)
        yield* work.record([result(resumed)])
      }
      yield* store.pause(orgId, targets[0]!, 5 * slack)
      const limited = only(yield* claim())
      assert.approximately(limited.paused?.endsIn ?? 0, 5 * slack, slack)
      yield* work.record([result(limited, { dueIn: 6 * slack })])
      yield* store.advance(6 * slack + 1)
      assert.isNull(only(yield* claim()).paused)
    })
  )

  it.effect("a pause elsewhere is not seen", () =>
    Effect.gen(function* () {
      const { store, orgId, make, claim } = yield* setting
      const other = yield* store.makeOrganization
      yield* make()
      yield* store.pause(other, { scope: "organization", target: "" }, null)
      yield* store.pause(orgId, { scope: "resource", target: uuid() }, null)
      yield* store.pause(orgId, { scope: "kind", target: "Another" }, null)
      assert.isNull(only(yield* claim()).paused)
    })
  )

  it.effect("a retry is acknowledged by the run that began after it, and by no other", () =>
    Effect.gen(function* () {
      const { work, store, orgId, make, take, claim, stored } = yield* setting
      const uid = yield* make()
      yield* work.record([result(yield* take(uid), { attempt: 5, waitingOn: uuid() })])
      const first = yield* store.retry(orgId, uid)
      const run = only(yield* claim())
      assert.strictEqual(run.retryToken, first)
      assert.strictEqual(run.attempt, 0)
      const second = yield* store.retry(orgId, uid)
      yield* work.record([result(run)])
      assert.strictEqual((yield* stored(uid)).work?.handledRetry, first)
      const next = only(yield* claim())
      assert.strictEqual(next.retryToken, second)
      yield* work.record([result(next)])
      assert.strictEqual((yield* stored(uid)).work?.handledRetry, second)
      const last = yield* take(uid)
      assert.isNull(last.retryToken)
      yield* work.record([result(last)])
      assert.strictEqual((yield* stored(uid)).work?.handledRetry, second)
    })
  )
}
