import { inspect } from "node:util"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import { anotherApi } from "#test/setup/another-api.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { makeRecording } from "#test/setup/recording.ts"
import { letIn, post, redeem, refresh, requestsOf } from "./plane.ts"

const { traced, recording } = makeRecording()
const variables = { SVC_AGENT_RATE_LIMIT: "100000" }

layer(testPlane({}, variables, true), { excludeTestServices: true })("what is handed to agents", (it) => {
  it.effect("stands in no log, trace, metric or other answer", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const { tenant, metricsUrl } = yield* Plane
        const requests = yield* requestsOf
        const logged: Array<unknown> = []
        const url = yield* anotherApi({}, variables, {
          logger: Logger.make((options) => void logged.push(options)),
          tracer: recording
        })
        const mine = yield* tenant()
        const { code, verifier } = yield* letIn(requests, { tenant: mine, scope: "projects.list" })
        const first = yield* redeem(url, code, verifier)
        const second = yield* refresh(url, first.body.refresh_token)
        const token = second.body.access_token
        const headers = { authorization: `Bearer ${token}` }
        const ask = (path: string) =>
          Effect.promise(async () => (await fetch(`${url}${path}`, { headers })).text())
        const answers: Array<unknown> = [
          yield* ask(`/v1/orgs/${mine.slug}/projects`),
          yield* ask(`/v1/orgs/${mine.slug}/projects/x`),
          yield* ask("/v1/me"),
          // Refused each: used before, of another client, no token, given twice.
          yield* redeem(url, code, verifier),
          yield* refresh(url, first.body.refresh_token),
          yield* refresh(url, second.body.refresh_token, { client_id: "svc-mcp" }),
          yield* post(url, "/oauth/revoke", { client_id: "svc-cli", token }),
          yield* ask(`/v1/orgs/${mine.slug}/projects`)
        ]
        answers.push(yield* Effect.promise(async () => (await fetch(`${metricsUrl}/metrics`)).text()))
        const secrets = [
          code,
          verifier,
          first.body.access_token,
          first.body.refresh_token,
          token,
          second.body.refresh_token
        ]
        const spans = traced.map(({ name, attributes, events }) => [name, [...attributes], events])
        assert.isNotEmpty(spans)
        assert.isAbove(spans.length, 10)
        assert.isAbove(logged.length, 0)
        const told = inspect([answers, spans, logged], {
          depth: 12,
          maxArrayLength: null,
          maxStringLength: null
        })
        for (const secret of secrets) {
          assert.notInclude(told, secret)
          // Without what tells of which kind it is; the rest may hold an underscore too.
          assert.notInclude(told, secret.replace(/^[a-z]+_/, ""))
        }
      })
    )
  )
})
