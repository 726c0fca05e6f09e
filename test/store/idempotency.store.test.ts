import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db } from "#src/store/Db.ts"
import { type Begun, Idempotency, type IdempotencyRef } from "#src/store/Idempotency.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { newReservation, randomBytesOf, uidsOf } from "#src/store/Reservation.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"

const services = Idempotency.layer.pipe(Layer.provide(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))
const [mine, other] = [Buffer.from("mine"), Buffer.from("other")]

const reservationOf = (begun: Begun) =>
  begun._tag === "Try" ? begun.reservation : assert.fail(`it is ${begun._tag}`)

/** As if the tries of the key had begun so long ago. */
const backdate = Effect.fnUntraced(function* ({ orgId }: IdempotencyRef, interval: string) {
  const { engine: sql } = yield* Db
  yield* sql`update idempotency set created_at = now() - ${interval}::interval where org_id = ${orgId}::uuid`
})

const setUp = Effect.gen(function* () {
  const { id } = yield* makeOrganization()
  const ref: IdempotencyRef = { orgId: id, credential: "key:1", key: "once" }
  const store = yield* Idempotency
  return { ref, store, begin: (digest: Buffer) => store.begin(ref, digest) }
})

layer(services, { excludeTestServices: true })("tries of a request", (it) => {
  it.effect("have one reservation when one failed or died, and no other request gets the key", () =>
    Effect.gen(function* () {
      const { ref, store, begin } = yield* setUp
      const first = reservationOf(yield* begin(mine))
      assert.isFalse(first.again)
      assert.strictEqual((yield* begin(mine))._tag, "InFlight")
      yield* backdate(ref, "119 seconds")
      assert.strictEqual((yield* begin(mine))._tag, "InFlight")
      yield* backdate(ref, "121 seconds")
      assert.strictEqual((yield* begin(other))._tag, "OtherRequest")
      const second = reservationOf(yield* begin(mine))
      assert.deepStrictEqual([second.uid, second.again], [first.uid, true])
      assert.deepStrictEqual(randomBytesOf(second, "password", 24), randomBytesOf(first, "password", 24))
      // The lease is the second one's.
      assert.strictEqual((yield* begin(mine))._tag, "InFlight")
      yield* store.fail(ref)
      assert.strictEqual((yield* begin(other))._tag, "OtherRequest")
      const third = reservationOf(yield* begin(mine))
      assert.deepStrictEqual([third.uid, third.again], [first.uid, true])
      yield* store.finish(ref, { status: 201, headers: {}, body: "" })
      assert.strictEqual((yield* begin(mine))._tag, "Replay")
      assert.strictEqual((yield* begin(other))._tag, "OtherRequest")
    })
  )

  it.effect("leave the key free when they are refused, unless one before may have taken effect", () =>
    Effect.gen(function* () {
      const { ref, store, begin } = yield* setUp
      const first = reservationOf(yield* begin(mine))
      yield* store.refuse(ref)
      // Nothing came of the first one: what the next one makes is as young as that try.
      const next = reservationOf(yield* begin(mine))
      assert.notStrictEqual(next.uid, first.uid)
      assert.isFalse(next.again)
      yield* store.refuse(ref)
      const corrected = reservationOf(yield* begin(other))
      assert.notStrictEqual(corrected.uid, first.uid)
      assert.isFalse(corrected.again)
      yield* store.fail(ref)
      assert.strictEqual(reservationOf(yield* begin(other)).uid, corrected.uid)
      // As when billing ended meanwhile.
      yield* store.refuse(ref)
      assert.strictEqual((yield* begin(mine))._tag, "OtherRequest")
      assert.strictEqual(reservationOf(yield* begin(other)).uid, corrected.uid)
    })
  )

  it.effect("are over once one is answered, also by a process that leaves the outcome as it was", () =>
    Effect.gen(function* () {
      const { ref, store, begin } = yield* setUp
      const { engine: sql } = yield* Db
      yield* begin(mine)
      yield* store.finish(ref, { status: 201, headers: {}, body: "" })
      for (const outcome of ["refused", "failed"]) {
        yield* sql`update idempotency set outcome = ${outcome} where org_id = ${ref.orgId}::uuid`
        assert.strictEqual((yield* begin(mine))._tag, "Replay")
        assert.strictEqual((yield* begin(other))._tag, "OtherRequest")
      }
    })
  )

  it.effect("are forgotten after a day", () =>
    Effect.gen(function* () {
      const { ref, store, begin } = yield* setUp
      const first = reservationOf(yield* begin(mine))
      yield* store.fail(ref)
      yield* backdate(ref, "25 hours")
      const later = reservationOf(yield* begin(mine))
      assert.notStrictEqual(later.uid, first.uid)
      assert.isFalse(later.again)
    })
  )

  it.effect("make the same ids, in their order, and different things different ones", () =>
    Effect.sync(() => {
      const reservation = newReservation(true)
      const ids = uidsOf(reservation, "messages", 1_000)
      assert.deepStrictEqual(ids, uidsOf({ ...reservation, again: true }, "messages", 1_000))
      assert.deepStrictEqual(ids, ids.toSorted())
      for (const id of ids)
        assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
      const all = [
        ...ids,
        ...uidsOf(reservation, "environments", 2),
        ...uidsOf(newReservation(true), "messages", 9)
      ]
      assert.strictEqual(new Set(all).size, 1_011)
    })
  )
})
