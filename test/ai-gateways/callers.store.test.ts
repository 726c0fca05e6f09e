import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { type GatewayCaller, GatewayCallers } from "#src/ai-gateways/GatewayCallers.ts"
import { GatewayKeys } from "#src/ai-gateways/GatewayKeys.ts"
import { AppServiceTokens } from "#src/projects/AppServiceTokens.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { newReservation } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import { testDb } from "#test/setup/database.ts"
import { actor } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"
import { type Gateway, gatewayChange, newGateway } from "./world.ts"

const stack = Layer.mergeAll(
  GatewayCallers.layer,
  GatewayKeys.layer,
  AppServiceTokens.layer,
  Resources.layer
).pipe(Layer.provide(KeyRing.layerEphemeral), Layer.provideMerge(testDb()))

const newKey = Effect.fnUntraced(function* ({ orgId, gateway }: Gateway) {
  const keys = yield* GatewayKeys
  const made = yield* keys.create(orgId, gateway, "app", actor, newReservation(false))
  return Option.getOrThrow(made)
})

const newToken = Effect.fnUntraced(function* ({ orgId, place }: Gateway) {
  const tokens = yield* AppServiceTokens
  const rotated = yield* tokens.rotate(orgId, place.production, actor, newReservation(false))
  return Option.getOrThrow(rotated).token
})

const tokenNow = Effect.fnUntraced(function* ({ orgId, projectId }: Gateway, environment = "production") {
  const tokens = yield* AppServiceTokens
  return Option.map(yield* tokens.current(orgId, projectId, environment), ({ token }) =>
    Redacted.value(token)
  )
})

const found = Effect.fnUntraced(function* (bearer: Redacted.Redacted, name = "ai") {
  const { identify } = yield* GatewayCallers
  return Option.getOrUndefined(yield* identify(bearer, name))
})

layer(stack, { excludeTestServices: true, timeout: "2 minutes" })("callers of gateways", (it) => {
  it.effect("are who holds one of its keys, at its name only", () =>
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const gateway = yield* newGateway(5)
      const { id, secret, keyPrefix } = yield* newKey(gateway)
      assert.match(Redacted.value(secret), /^svcgw_[0-9a-f]{40}$/)
      assert.isTrue(Redacted.value(secret).startsWith(keyPrefix.replace("...", "")))
      assert.deepStrictEqual(yield* found(secret), {
        orgId: gateway.orgId,
        billingActive: true,
        gateway: {
          uid: gateway.gateway,
          projectId: gateway.projectId,
          environment: "production",
          name: "ai",
          spec: {
            allowedModels: ["svc/fast"],
            monthlyBudgetUsd: 5,
            timeoutMs: 60_000,
            maxRetries: 2,
            redactPrompts: true
          }
        },
        keyId: id,
        credentialId: id
      })
      for (const name of ["other", "", "Ai", "ai\0", "x".repeat(5_000), "ai' or true --"]) {
        const caller = yield* found(secret, name)
        assert.deepStrictEqual([caller?.keyId, caller?.gateway], [id, undefined], name)
      }
      const used = sql`select last_used_at from ai_gateway_key where id = ${id} and last_used_at is not null`
      yield* eventually("its use is noted", used, (rows) => rows.length === 1)
      yield* sql`update organization set billing_status = 'unpaid' where id = ${gateway.orgId}`
      assert.isFalse((yield* found(secret))?.billingActive)
    })
  )

  it.effect("are apps of its environment, with the token of the environment", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const gateway = yield* newGateway(5)
      const token = Option.getOrThrow(yield* tokenNow(gateway))
      assert.match(token, /^svcapp_[0-9a-f]{40}$/)
      const caller = yield* found(Redacted.make(token))
      assert.deepInclude(caller, { orgId: gateway.orgId, keyId: null })
      assert.strictEqual(caller?.gateway?.uid, gateway.gateway)
      assert.isUndefined((yield* found(Redacted.make(token), "other"))?.gateway)
      // The environment `preview` has a token of its own, and no gateway of this name.
      const preview = Redacted.make(Option.getOrThrow(yield* tokenNow(gateway, "preview")))
      assert.isUndefined((yield* found(preview))?.gateway)
      const second = gatewayChange(gateway.place, "second", { monthlyBudgetUsd: 1 })
      yield* resources.write(gateway.orgId, [second], actor)
      assert.strictEqual((yield* found(Redacted.make(token), "second"))?.gateway?.uid, second.uid)
      const stranger = yield* newGateway(5)
      const theirs = Redacted.make(Option.getOrThrow(yield* tokenNow(stranger)))
      assert.strictEqual((yield* found(theirs))?.gateway?.uid, stranger.gateway)
      assert.isTrue(Option.isNone(yield* tokenNow({ ...gateway, orgId: stranger.orgId })))
    })
  )

  it.effect("are nobody with what is no valid credential", () =>
    Effect.gen(function* () {
      const keys = yield* GatewayKeys
      const gateway = yield* newGateway(5)
      const { id, secret } = yield* newKey(gateway)
      const wrong = ["", "x", "svcgw_", `svcgw_${"0".repeat(40)}`, `svcapp_${"0".repeat(40)}`, "svc_key"]
      for (const bearer of [...wrong, `${Redacted.value(secret)}0`, Redacted.value(secret).toUpperCase()])
        assert.isUndefined(yield* found(Redacted.make(bearer)), bearer)
      const stranger = yield* newGateway(5)
      assert.isFalse(yield* keys.revoke(stranger.orgId, gateway.gateway, id, actor))
      assert.isFalse(yield* keys.revoke(gateway.orgId, stranger.gateway, id, actor))
      assert.isDefined(yield* found(secret))
      assert.isTrue(yield* keys.revoke(gateway.orgId, gateway.gateway, id, actor))
      assert.isTrue(yield* keys.revoke(gateway.orgId, gateway.gateway, id, actor))
      assert.isUndefined(yield* found(secret))
    })
  )

  it.effect("hold nothing once their gateway, or its environment, is being deleted", () =>
    Effect.gen(function* () {
      const resources = yield* Resources
      const gateway = yield* newGateway(5)
      const { secret } = yield* newKey(gateway)
      const token = yield* newToken(gateway)
      yield* resources.write(gateway.orgId, [{ action: "delete", uid: gateway.gateway }], actor)
      assert.isUndefined(yield* found(secret))
      assert.isUndefined((yield* found(token))?.gateway)
      yield* resources.write(gateway.orgId, [{ action: "delete", uid: gateway.projectId }], actor)
      assert.isUndefined(yield* found(token))
      assert.isTrue(Option.isNone(yield* tokenNow(gateway)))
    })
  )

  it.effect("keep the token before the last rotation, and no older one", () =>
    Effect.gen(function* () {
      const tokens = yield* AppServiceTokens
      const { engine: sql } = yield* Db
      const gateway = yield* newGateway(5)
      const first = Redacted.make(Option.getOrThrow(yield* tokenNow(gateway)))
      const reservation = newReservation(true)
      const rotate = tokens.rotate(gateway.orgId, gateway.place.production, actor, reservation)
      const second = Option.getOrThrow(yield* rotate)
      const until = (second.previousValidUntil?.getTime() ?? 0) - Date.now()
      assert.isTrue(until > 23 * 3_600_000 && until <= 24 * 3_600_000 + 60_000, `${until}`)
      assert.isDefined(yield* found(first))
      assert.isDefined(yield* found(second.token))
      assert.strictEqual(Option.getOrThrow(yield* tokenNow(gateway)), Redacted.value(second.token))
      // Another try of the same request replaces nothing.
      const again = Option.getOrThrow(yield* rotate)
      assert.strictEqual(Redacted.value(again.token), Redacted.value(second.token))
      assert.isDefined(yield* found(first))
      const third = yield* newToken(gateway)
      assert.isUndefined(yield* found(first))
      assert.isDefined(yield* found(second.token))
      yield* sql`update app_service_token set expires_at = now() where org_id = ${gateway.orgId} and expires_at is not null`
      assert.isUndefined(yield* found(second.token))
      assert.isDefined(yield* found(third))
      const many = yield* Effect.forEach([1, 2, 3, 4], () => newToken(gateway), { concurrency: "unbounded" })
      const valid = yield* Effect.forEach(many, (token) => found(token))
      assert.lengthOf(
        valid.filter((caller) => caller !== undefined),
        2
      )
    })
  )

  it.effect("of one environment get one token, however many ask for the first at once", () =>
    Effect.gen(function* () {
      const gateway = yield* newGateway(5)
      const all = yield* Effect.forEach([1, 2, 3, 4, 5, 6], () => tokenNow(gateway), {
        concurrency: "unbounded"
      })
      assert.strictEqual(new Set(all.map(Option.getOrThrow)).size, 1)
    })
  )

  it.effect("are told while they call that their key, their token or the gateway is gone", () =>
    Effect.gen(function* () {
      const { onEnded } = yield* GatewayCallers
      const ended = (caller: GatewayCaller) =>
        Effect.callback<string>((resume) => {
          const leave = onEnded(caller, (why) => resume(Effect.succeed(why)))
          return Effect.sync(leave)
        })
      const keys = yield* GatewayKeys
      const resources = yield* Resources
      const gateway = yield* newGateway(5)
      const [one, other] = [yield* newKey(gateway), yield* newKey(gateway)]
      const token = yield* newToken(gateway)
      const watch = Effect.fnUntraced(function* (bearer: Redacted.Redacted) {
        const caller = yield* found(bearer)
        return yield* Effect.forkChild(ended(caller ?? assert.fail("it is nobody")), {
          startImmediately: true
        })
      })
      const [ofOne, ofOther, ofApp] = [
        yield* watch(one.secret),
        yield* watch(other.secret),
        yield* watch(token)
      ]
      yield* keys.revoke(gateway.orgId, gateway.gateway, one.id, actor)
      assert.strictEqual(yield* Fiber.join(ofOne), "credential")
      assert.deepStrictEqual([ofOther.pollUnsafe(), ofApp.pollUnsafe()], [undefined, undefined])
      // The token before the last one still holds; the one before that does not.
      yield* newToken(gateway)
      yield* newToken(gateway)
      assert.strictEqual(yield* Fiber.join(ofApp), "credential")
      assert.isUndefined(ofOther.pollUnsafe())
      yield* resources.write(gateway.orgId, [{ action: "delete", uid: gateway.gateway }], actor)
      assert.strictEqual(yield* Fiber.join(ofOther), "gateway")
      // It ended before it was watched.
      const late = { ...gateway, gateway: { uid: gateway.gateway } }
      const caller = {
        orgId: late.orgId,
        billingActive: true,
        gateway: undefined,
        keyId: one.id,
        credentialId: one.id
      }
      assert.strictEqual(yield* ended(caller), "gateway")
    })
  )
})
