/** JSON that is nested without end, wherever it comes in, and what was stored of it before there was a bound. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { untilAnswer } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

const nested = (depth: number, inside = "") => `${"[".repeat(depth)}${inside}${"]".repeat(depth)}`

const main = "/v1/orgs/main"
const project = Effect.fnUntraced(function* (slug: string) {
  const { call } = yield* Plane
  const made = yield* call("POST", `${main}/projects`, { body: { name: slug, slug } })
  assert.strictEqual(made.status, 201, made.text)
  return `${main}/projects/${slug}`
})
const cron = (name: string, body: string) =>
  `{"name":"${name}","schedule":"0 0 1 1 *","target":{"kind":"http","path":"/jobs","body":${body}}}`

layer(testPlane(), { excludeTestServices: true, timeout: "3 minutes" })(
  "JSON that is nested deeply",
  (it) => {
    it.effect("is refused wherever it comes in, with the place and the bound", () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const at = yield* project("refusing")
        yield* call("POST", `${at}/queues`, { body: { name: "mail" } })
        const [queue] = (yield* call("GET", `${at}/queues`)).body
        const kept = yield* call("POST", `${at}/crons`, { raw: cron("kept", "1") })
        assert.strictEqual(kept.status, 201)
        for (const depth of [65, 3_000, 8_000, 400_000]) {
          const deep = nested(depth)
          const manifest = `{"version":1,"organization":"main","projects":${deep}}`
          const yaml = { "content-type": "application/yaml" }
          const requests: ReadonlyArray<
            readonly [method: string, path: string, raw: string, headers?: Record<string, string>]
          > = [
            ["POST", `${at}/queues/${queue.id}/messages`, `{"messages":[{"body":${deep}}]}`],
            ["POST", `${at}/crons`, cron("deep", deep)],
            ["PATCH", `${at}/crons/${kept.body.id}`, `{"target":{"kind":"http","path":"/","body":${deep}}}`],
            ["PUT", `${at}/env`, `{"vars":${deep}}`],
            ["POST", `${main}/manifest/plan`, manifest],
            ["POST", `${main}/manifest/plan`, manifest, yaml],
            ["POST", `${main}/manifest/plan`, `version: 1\nprojects:\n  ${deep}`, yaml],
            ["POST", `${main}/manifest/apply`, `{"manifest":${manifest}}`],
            // A parameter of the media type says nothing of the language.
            ["POST", `${at}/crons`, cron("deep", deep), { "content-type": "application/json; x=yaml" }],
            ["POST", `${main}/manifest/plan`, manifest, { "content-type": "application/json; x=yaml" }]
          ]
          for (const [method, path, raw, headers = {}] of requests) {
            const { status, body } = yield* call(method, path, { raw, headers })
            assert.deepStrictEqual([status, body.code], [422, "invalid"], `${method} ${path} ${depth}`)
            assert.strictEqual(body.errors[0].message, "is nested deeper than 64 levels")
            assert.isAtLeast(body.errors[0].line, 1)
            assert.isAtLeast(body.errors[0].column, 40)
          }
          const signIn = yield* call("POST", "/v1/auth/sign-in", { raw: deep, token: null })
          assert.strictEqual(signIn.status, depth > 8_000 ? 413 : 422)
        }
        // Brackets within texts are no levels.
        const text = JSON.stringify(`\\"${nested(400)}`)
        const published = yield* call("POST", `${at}/queues/${queue.id}/messages`, {
          raw: `{"messages":[{"body":${text}}]}`
        })
        assert.strictEqual(published.status, 202, published.text)
      })
    )

    it.effect("leaves room for a manifest around a body of a cron job", () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const at = yield* project("fitting")
        const tooDeep = yield* call("POST", `${at}/crons`, { raw: cron("deep", nested(49)) })
        assert.strictEqual(tooDeep.status, 422)
        assert.strictEqual(tooDeep.body.errors[0].pointer, "/target/body")
        assert.strictEqual(tooDeep.body.errors[0].message, "must not be nested deeper than 48 levels")
        const made = yield* call("POST", `${at}/crons`, { raw: cron("deep", nested(48)) })
        assert.strictEqual(made.status, 201, made.text)
        for (const type of ["application/json", "application/yaml"]) {
          const exported = yield* call("GET", `${main}/manifest`, { headers: { accept: type } })
          const plan = yield* call("POST", `${main}/manifest/plan`, {
            raw: exported.text,
            headers: { "content-type": type }
          })
          assert.strictEqual(plan.status, 200, plan.text)
          assert.deepStrictEqual(
            plan.body.changes.filter((change: { action: string }) => change.action !== "noop"),
            []
          )
        }
      })
    )

    for (const [what, spec] of [
      ["nested too deeply", `jsonb_set(spec, '{target,body}', '${nested(3_000)}')`],
      ["not one of its kind", `'{"schedule": 7}'`]
    ] as const) {
      it.effect(
        `that is stored and ${what} breaks no list and no export, and is deleted like any other`,
        () =>
          Effect.gen(function* () {
            const { call, sql } = yield* Plane
            const slug = what.replaceAll(" ", "-")
            const at = yield* project(slug)
            const create = Effect.fnUntraced(function* (name: string) {
              const made = yield* call("POST", `${at}/crons`, { raw: cron(name, "1") })
              assert.strictEqual(made.status, 201, made.text)
              return `${made.body.id}`
            })
            const [whole, broken, left] = [
              yield* create("whole"),
              yield* create("broken"),
              yield* create("left")
            ]
            for (const uid of [broken, left]) {
              yield* untilAnswer(
                call("GET", `${main}/resources/${uid}`),
                ({ body }) => body.phase === "ready"
              )
              yield* sql(
                `update resource set spec = ${spec}, generation = generation + 1 where uid = '${uid}'`
              )
              yield* call("POST", `${main}/resources/${uid}/retry`)
            }
            const failed = yield* untilAnswer(
              call("GET", `${main}/resources/${broken}`),
              ({ status, body }) => {
                assert.strictEqual(status, 200)
                return body.phase === "failed"
              }
            )
            const [ready] = failed.body.conditions
            assert.strictEqual(ready.reason, "InvalidSpec")

            const listed = yield* call("GET", `${at}/crons`)
            assert.strictEqual(listed.status, 200, listed.text)
            assert.deepStrictEqual(
              listed.body.map((one: { id: string }) => one.id),
              [whole]
            )
            const shown = yield* call("GET", `${at}/crons/${broken}`)
            assert.deepStrictEqual([shown.status, shown.body.code], [409, "unreadable_specification"])
            assert.strictEqual((yield* call("GET", `${main}/resources?limit=100`)).status, 200)
            for (const type of ["application/json", "application/yaml"]) {
              const exported = yield* call("GET", `${main}/manifest`, { headers: { accept: type } })
              assert.strictEqual(exported.status, 200)
              assert.include(exported.text, "whole")
            }
            // What an export cannot show is not deleted where that export is applied with prune.
            const manifest = (yield* call("GET", `${main}/manifest`)).body
            const plan = yield* call("POST", `${main}/manifest/plan?prune=true`, { body: manifest })
            assert.strictEqual(plan.status, 200, plan.text)
            const codes = plan.body.blockers.map(({ code }: { code: string }) => code)
            assert.deepStrictEqual(codes, ["unreadable_specification", "unreadable_specification"])

            const gone = (uid: string) =>
              untilAnswer(call("GET", `${main}/resources/${uid}`), ({ status }) => status === 404)
            assert.strictEqual((yield* call("DELETE", `${at}/crons/${broken}`)).status, 200)
            yield* gone(broken)
            assert.strictEqual((yield* call("DELETE", at, { token: (yield* Plane).session })).status, 200)
            yield* gone(left)
            yield* untilAnswer(call("GET", at), ({ status }) => status === 404)
          })
      )
    }
  }
)
