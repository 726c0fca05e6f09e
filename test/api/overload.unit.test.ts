/** The bounds on requests at once. */
import { assert, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import { type Arriving, admission, RequestLimit } from "#src/api/overload.ts"

const limit = { atOnce: 4, arriving: 6 }
const withLimit = Effect.provideService(RequestLimit, limit)

const whole = { complete: true, headers: {}, url: "/v1/orgs/main/projects", socket: { destroyed: false } }
const sending = { ...whole, complete: false, headers: { "content-length": "10" } }
const ofApp = (request: Arriving, path = "ai/main/chat/completions"): Arriving => ({
  ...request,
  url: `/v1/runtime/${path}`
})

/** Requests that are held until `end`, and what one that asks for nothing is answered just now. */
const world = Effect.gen(function* () {
  const admitted = yield* admission
  const go = yield* Deferred.make<void>()
  const held = Effect.as(Deferred.await(go), HttpServerResponse.empty({ status: 204 }))
  const begin = (request: Arriving) => Effect.forkChild(admitted(request, held), { startImmediately: true })
  return {
    begin,
    beginAll: (count: number, request: Arriving) =>
      Effect.forEach(
        Array.from({ length: count }, () => request),
        begin
      ),
    now: (request: Arriving) =>
      Effect.map(
        admitted(request, Effect.succeed(HttpServerResponse.empty({ status: 200 }))),
        ({ status, headers }) => [status, headers["retry-after"] !== undefined] as const
      ),
    end: Effect.fnUntraced(function* (
      fibers: ReadonlyArray<Fiber.Fiber<HttpServerResponse.HttpServerResponse>>
    ) {
      yield* Deferred.succeed(go, undefined)
      for (const fiber of fibers) assert.strictEqual((yield* Fiber.join(fiber)).status, 204)
    })
  }
})
const served: readonly [number, boolean] = [200, false]
const refused: readonly [number, boolean] = [503, true]

it.effect("requests beyond the bound are refused at once and told when to come again, until others end", () =>
  Effect.gen(function* () {
    const { begin, beginAll, now, end } = yield* world
    const some = yield* beginAll(3, whole)
    assert.deepStrictEqual(yield* now(whole), served)
    const last = yield* begin(whole)
    assert.deepStrictEqual(yield* now(whole), refused)
    assert.deepStrictEqual(yield* now(sending), refused)
    yield* Fiber.interrupt(last)
    assert.deepStrictEqual(yield* now(whole), served)
    const again = yield* begin(whole)
    assert.deepStrictEqual(yield* now(whole), refused)
    yield* end([...some, again])
    assert.deepStrictEqual(yield* now(whole), served)
  }).pipe(withLimit)
)

it.effect("those whose body is on its way keep out only others who send, and work once it has come", () =>
  Effect.gen(function* () {
    const { begin, now, end } = yield* world
    const bodies = Array.from({ length: limit.arriving }, () => ({ ...sending }))
    const some = yield* Effect.forEach(bodies, begin)
    assert.deepStrictEqual(yield* now(sending), refused)
    assert.deepStrictEqual(yield* now({ ...sending, headers: { "transfer-encoding": "chunked" } }), refused)
    assert.deepStrictEqual(yield* now(whole), served)
    for (const body of bodies.slice(0, limit.atOnce)) body.complete = true
    assert.deepStrictEqual(yield* now(whole), refused)
    yield* end(some)
    assert.deepStrictEqual(yield* now(sending), served)
  }).pipe(withLimit)
)

it.effect("who hung up holds no place, though what was begun for it goes on", () =>
  Effect.gen(function* () {
    const { beginAll, now, end } = yield* world
    const socket = { destroyed: false }
    const some = yield* beginAll(limit.atOnce, { ...whole, socket })
    assert.deepStrictEqual(yield* now(whole), refused)
    socket.destroyed = true
    assert.deepStrictEqual(yield* now(whole), served)
    yield* end(some)
  }).pipe(withLimit)
)

it.effect("what apps send by themselves takes half of the places", () =>
  Effect.gen(function* () {
    const { begin, beginAll, now, end } = yield* world
    const one = yield* begin(ofApp(whole))
    const two = yield* begin({ ...whole, url: "/v1/speed-insights/collect/ref?a=b" })
    assert.deepStrictEqual(yield* now(ofApp(whole)), refused)
    assert.deepStrictEqual(yield* now(ofApp(sending, "payments/checkout")), refused)
    const others = yield* beginAll(1, whole)
    assert.deepStrictEqual(yield* now(whole), served)
    yield* end([one, two, ...others])
    assert.deepStrictEqual(yield* now(ofApp(whole)), served)
  }).pipe(withLimit)
)

it.effect("bodies of apps take half of the places of bodies", () =>
  Effect.gen(function* () {
    const { beginAll, now, end } = yield* world
    const some = yield* beginAll(limit.arriving / 2, ofApp(sending))
    assert.deepStrictEqual(yield* now(ofApp(sending)), refused)
    assert.deepStrictEqual(yield* now(sending), served)
    yield* end(some)
  }).pipe(withLimit)
)

it.effect("whether the process is well is told under any load, and takes no place", () =>
  Effect.gen(function* () {
    const { beginAll, now, end } = yield* world
    const health = { ...whole, url: "/v1/health?verbose" }
    const asking = yield* beginAll(2 * limit.atOnce, health)
    assert.deepStrictEqual(yield* now(whole), served)
    const some = yield* beginAll(limit.atOnce, whole)
    assert.deepStrictEqual(yield* now(whole), refused)
    assert.deepStrictEqual(yield* now(health), served)
    yield* end([...asking, ...some])
  }).pipe(withLimit)
)
