import { assert, layer } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as TestClock from "effect/testing/TestClock"
import { AgentTokens } from "#src/agents/AgentTokens.ts"
import type { AuthorizationRequests } from "#src/agents/AuthorizationRequests.ts"
import { AppConfig } from "#src/config.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { anotherApi } from "#test/setup/another-api.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { postgresProxy } from "#test/setup/postgres-proxy.ts"
import { eventually } from "#test/setup/wait.ts"
import { letIn, redeem, refresh, requestsOf, requestsWithin, tokensFor } from "./plane.ts"
import { queryOf } from "./world.ts"

const scope = "projects.list"
const variables = { SVC_AGENT_RATE_LIMIT: "100000" }
/** More tries than the program makes. */
const always = 100

layer(testPlane({}, variables), { excludeTestServices: true, timeout: "3 minutes" })(
  "a token request",
  (it) => {
    /** The service behind the endpoint, on a way to the store that loses what the test says. */
    const onLossyWay = Effect.gen(function* () {
      const { databaseUrl, dataDir } = yield* Plane
      const proxy = yield* postgresProxy(Redacted.make(databaseUrl))
      const context = yield* Layer.build(
        AgentTokens.layer.pipe(
          Layer.provide(PlatformSecrets.layer),
          Layer.provide([KeyRing.layer, Db.layer({ url: proxy.url })]),
          Layer.provide(AppConfig.layerWith({ dataDir }))
        )
      )
      return { tokens: Context.get(context, AgentTokens), proxy }
    })
    /** The services on such a way. */
    interface Way {
      readonly tokens: AgentTokens["Service"]
      readonly requests: AuthorizationRequests["Service"]
    }
    const refreshed = { clientId: "svc-cli", audience: undefined, scopes: undefined }

    it.effect("whose statement or its answer is lost on the way is carried out once, and answered", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const { url, tenant } = yield* Plane
          const requests = yield* requestsOf
          const { tokens, proxy } = yield* onLossyWay
          for (const lose of ["request", "answer"] as const) {
            const mine = yield* tenant()
            const { code, verifier } = yield* letIn(requests, { tenant: mine, scope })
            proxy.state.losing = { statement: "svc_redeem_code", lose, times: 1 }
            const first = yield* tokens.redeem({
              code,
              verifier,
              clientId: "svc-cli",
              redirectUri: undefined,
              audience: undefined
            })
            assert.strictEqual(proxy.state.losing.times, 0)
            proxy.state.losing = { statement: "svc_refresh_grant", lose, times: 2 }
            const second = yield* tokens.refresh({ token: Redacted.value(first.refresh), ...refreshed })
            assert.strictEqual(proxy.state.losing.times, 0)
            proxy.state.losing = undefined
            assert.strictEqual((yield* refresh(url, Redacted.value(second.refresh))).status, 200)
          }
        })
      )
    )

    it.effect("that the store never got leaves everything as it was, and is no invalid grant", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const { url, tenant } = yield* Plane
          const requests = yield* requestsOf
          const { tokens, proxy } = yield* onLossyWay
          const mine = yield* tenant()
          const { refresh: token } = yield* tokensFor(requests, { tenant: mine, scope })
          proxy.state.losing = { statement: "svc_refresh_grant", lose: "request", times: always }
          const failed = yield* Effect.flip(tokens.refresh({ token, ...refreshed }))
          assert.strictEqual(failed._tag, "StoreUnavailable")
          assert.strictEqual((yield* refresh(url, token)).status, 200)
        })
      )
    )

    it.effect("whose answer stays lost never leaves two tokens that hold: trying again ends the grant", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const { url, tenant, sql } = yield* Plane
          const requests = yield* requestsOf
          const { tokens, proxy } = yield* onLossyWay
          const mine = yield* tenant()
          const { access, refresh: token } = yield* tokensFor(requests, { tenant: mine, scope })
          proxy.state.losing = { statement: "svc_refresh_grant", lose: "answer", times: always }
          const failed = yield* Effect.flip(tokens.refresh({ token, ...refreshed }))
          assert.strictEqual(failed._tag, "StoreUnavailable")
          const again = yield* refresh(url, token)
          assert.deepStrictEqual([again.status, again.body.error], [400, "invalid_grant"])
          const { call } = yield* Plane
          assert.strictEqual(
            (yield* call("GET", `/v1/orgs/${mine.slug}/projects`, { token: access })).status,
            401
          )
          const living = yield* sql(
            `select from agent_grant where org_id = '${mine.id}' and revoked_at is null`
          )
          assert.deepStrictEqual(living, [])
        })
      )
    )

    it.effect(
      "and every other wait for the store has an end, though nobody says that nothing will come",
      () =>
        Effect.scoped(
          Effect.gen(function* () {
            const { tenant } = yield* Plane
            const mine = yield* tenant()
            const direct = yield* requestsOf
            const { id } = yield* direct.begin(queryOf())
            const { refresh: token } = yield* tokensFor(direct, { tenant: mine, scope })
            const decision = {
              userId: id,
              sessionId: id,
              orgId: mine.id,
              role: "admin",
              scopes: ["projects.list"]
            } as const
            /** Each on a way of its own, all at once: the driver gives a silent connection up after five seconds. */
            const ends = Effect.fnUntraced(function* (
              statement: string,
              ask: (way: Way) => Effect.Effect<unknown, { readonly _tag: string }>
            ) {
              const { tokens, proxy } = yield* onLossyWay
              const requests = yield* requestsWithin(100_000, proxy.url)
              const losing = { statement, lose: "quietly" as const, times: always }
              proxy.state.losing = losing
              const clock = yield* TestClock.make()
              const fiber = yield* Effect.forkChild(
                Effect.provideService(
                  Effect.result(Effect.asVoid(ask({ tokens, requests }))),
                  Clock.Clock,
                  clock
                )
              )
              yield* eventually(
                "the statement was sent",
                Effect.sync(() => losing.times < always)
              )
              yield* clock.adjust("10 seconds")
              const answer = yield* Fiber.join(fiber)
              assert.strictEqual(
                answer._tag === "Failure" ? answer.failure._tag : "",
                "StoreUnavailable",
                statement
              )
            })
            yield* Effect.all(
              [
                ends("update agent_grant set revoked_at", ({ tokens }) => tokens.revoke(token, "svc-cli")),
                ends("insert into authorization_request", ({ requests }) => requests.begin(queryOf())),
                ends("from authorization_request", ({ requests }) => requests.get(id)),
                ends("from member m join account", ({ requests }) => requests.approve(id, decision)),
                ends("delete from authorization_request", ({ requests }) => requests.deny(id))
              ],
              { concurrency: "unbounded" }
            )
          })
        )
    )

    it.effect("is answered 503 while the store is away, and holds when it is back", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const { databaseUrl, tenant, url } = yield* Plane
          const requests = yield* requestsOf
          const proxy = yield* postgresProxy(Redacted.make(databaseUrl))
          const other = yield* anotherApi({ databaseUrl: proxy.url }, variables)
          const mine = yield* tenant()
          const { access, refresh: token } = yield* tokensFor(requests, { tenant: mine, scope })
          const { code, verifier } = yield* letIn(requests, { tenant: mine, scope })
          yield* proxy.goAway
          for (const answer of [yield* refresh(other, token), yield* redeem(other, code, verifier)]) {
            assert.deepStrictEqual([answer.status, answer.body.error], [503, "temporarily_unavailable"])
            assert.strictEqual(answer.headers.get("retry-after"), "2")
          }
          const asked = yield* Effect.promise(() =>
            fetch(`${other}/v1/orgs/${mine.slug}/projects`, {
              headers: { authorization: `Bearer ${access}` }
            })
          )
          assert.strictEqual(asked.status, 503)
          yield* proxy.comeBack
          const back = yield* eventually(
            "tokens again",
            refresh(other, token),
            ({ status }) => status !== 503
          )
          assert.strictEqual(back.status, 200)
          assert.strictEqual((yield* redeem(url, code, verifier)).status, 200)
        })
      )
    )

    campaign(
      it.effect,
      "agent-refreshes",
      "whatever is lost between processes and store, of a grant at most one refresh token holds, and none that was copied",
      { rounds: 2 },
      Effect.fnUntraced(function* ({ seed, full }) {
        const random = new Seeded(seed)
        const { tenant, sql } = yield* Plane
        const requests = yield* requestsOf
        const processes = [yield* onLossyWay, yield* onLossyWay] as const
        const mine = yield* tenant()
        const { code, verifier } = yield* letIn(requests, { tenant: mine, scope: "projects.list" })
        const asked = { clientId: "svc-cli", audience: undefined }
        const first = yield* processes[0].tokens.redeem({ ...asked, code, verifier, redirectUri: undefined })
        const held = [Redacted.value(first.refresh)]
        let [copied, unanswered] = [false, false]
        for (let step = 0; step < (full ? 40 : 12); step++) {
          const { tokens, proxy } = processes[random.int(0, 1)] ?? processes[0]
          const lose = random.int(0, 1) === 0 ? "request" : "answer"
          proxy.state.losing = { statement: "svc_refresh_grant", lose, times: random.int(0, 6) }
          const steals = random.int(0, 15) === 0
          const token = (steals ? held[random.int(0, held.length - 1)] : held.at(-1)) ?? ""
          const used = token !== held.at(-1)
          const answer = yield* Effect.result(tokens.refresh({ token, ...asked, scopes: undefined }))
          proxy.state.losing = undefined
          if (answer._tag === "Success") {
            assert.isFalse(used || copied, "a token was taken that had been used")
            held.push(Redacted.value(answer.success.refresh))
          } else if (answer.failure._tag === "StoreUnavailable") {
            unanswered = true
          } else {
            assert.isTrue(used || copied || unanswered, "a token that should hold was refused")
            copied = true
          }
        }
        const living = yield* sql(
          `select encode(refresh_digest, 'hex') as digest from agent_grant where org_id = '${mine.id}' and revoked_at is null`
        )
        if (copied) assert.deepStrictEqual(living, [])
        let taken = 0
        for (const token of held) {
          const answer = yield* Effect.result(
            processes[0].tokens.refresh({ token, ...asked, scopes: undefined })
          )
          if (answer._tag === "Success") taken++
          else assert.strictEqual(answer.failure._tag, "TokenRefused")
        }
        assert.isAtMost(taken, copied ? 0 : 1)
      })
    )
  }
)
