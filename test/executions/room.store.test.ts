/** A host without a container engine: what is asked for waits there, holds a place and an amount, and lets go of both. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import {
  anHourAgo,
  base,
  makeProject,
  planeWith,
  project,
  read,
  readyOf,
  small,
  until,
  untilReason
} from "./world.ts"

/** Nothing there waits for an engine so long that it fails while a test looks at something else. */
const patient = { engineMs: 86_400_000 }
const patience = 300_000

const ask = Effect.flatMap(Plane, ({ call }) =>
  call("POST", base, {
    body: { image: "docker.io/library/alpine:3", command: ["/bin/sh"], region: "local", resources: small }
  })
)

layer(planeWith(patient, { containerSocket: "none" }), { excludeTestServices: true, timeout: "3 minutes" })(
  "executions without an engine",
  (it) => {
    it.effect("wait, and availability says that there is none", () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        yield* makeProject
        assert.isFalse((yield* call("GET", `${base}/availability`)).body.ready)
      })
    )

    it.effect("hold the price of the longest they may take: their time, and ten seconds to end in", () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const held: Array<number> = []
        for (const timeoutSeconds of [10, 30]) {
          const { body } = yield* call("POST", base, {
            body: {
              image: "docker.io/library/alpine:3",
              command: ["/bin/sh"],
              region: "local",
              timeoutSeconds
            }
          })
          const [entry] = yield* sql(`select reserved::int from budget_entry where uid = '${body.id}'`)
          held.push(Number(entry?.["reserved"]))
          yield* call("POST", `${base}/${body.id}/cancel`)
          yield* until(body.id, ({ finishedAt }) => finishedAt !== null, "cancelled")
        }
        const [short = 0, long = 0] = held
        assert.isAbove(short, 0)
        assert.strictEqual(Math.round(long / short), 2, held.join())
      })
    )

    it.effect("never have more of them than may be at once, however many are asked for together", () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        const most = 20
        const answers = yield* Effect.all(
          Array.from({ length: 2 * most }, () => ask),
          { concurrency: "unbounded" }
        )
        const made = answers.filter(({ status }) => status === 202).map(({ body }) => String(body.id))
        assert.deepStrictEqual(
          [made.length, answers.filter(({ body }) => body.code === "too_many_executions").length],
          [most, most]
        )
        const [first = ""] = made
        assert.strictEqual((yield* read(first)).body.status, "starting")
        assert.strictEqual((yield* call("POST", `${base}/${first}/cancel`)).status, 202)
        const done = yield* until(first, ({ finishedAt }) => finishedAt !== null, "cancelled")
        assert.deepStrictEqual([done.status, done.startedAt], ["cancelled", null])
        assert.strictEqual((yield* ask).status, 202)
        assert.strictEqual((yield* ask).status, 409)
      })
    )

    it.effect("give back the place when the budget does not allow them", () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const places = () => sql("select cardinality(uids) as count from execution_room")
        const [one] = (yield* call("GET", `${base}?status=starting`)).body
        yield* call("POST", `${base}/${one.id}/cancel`)
        yield* until(one.id, ({ finishedAt }) => finishedAt !== null, "cancelled")
        const before = Number((yield* places())[0]?.["count"])
        yield* call("PUT", `${project}/budget`, { body: { monthlyCapUsd: 0, hardStop: true } })
        assert.strictEqual((yield* ask).status, 402)
        // The one that had ended was let go of, and the one that was refused.
        assert.strictEqual(Number((yield* places())[0]?.["count"]), before - 1)
        yield* call("PUT", `${project}/budget`, { body: { monthlyCapUsd: null, hardStop: false } })
        assert.strictEqual((yield* ask).status, 202)
      })
    )

    it.effect(
      "let go of what they reserved when their project is deleted",
      () =>
        Effect.gen(function* () {
          const { call, sql, session } = yield* Plane
          const open = () => sql("select count(*)::int as count from budget_entry where settled_at is null")
          assert.isAbove(Number((yield* open())[0]?.["count"]), 10)
          const gone = yield* call("DELETE", project, { token: session })
          assert.isBelow(gone.status, 300, gone.text)
          yield* eventually("nothing is reserved", open(), ([row]) => Number(row?.["count"]) === 0)
        }),
      patience
    )
  }
)

layer(planeWith(patient, { containerSocket: "none" }, { SVC_ORG_EXECUTIONS: "3" }), {
  excludeTestServices: true,
  timeout: "3 minutes"
})("an organization", (it) => {
  it.effect(
    "has a bound of its own over all of its projects, and finds its executions by how they stand",
    () =>
      Effect.gen(function* () {
        const { call } = yield* Plane
        yield* makeProject
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: "More", slug: "more" } })
        const more = base.replace("/jobs/", "/more/")
        const body = { image: "alpine", command: ["/bin/sh"], region: "local", resources: small }
        const answers = yield* Effect.all(
          Array.from({ length: 8 }, (_, i) => call("POST", i % 2 === 0 ? base : more, { body })),
          { concurrency: "unbounded" }
        )
        const refused = answers.filter(({ status }) => status !== 202)
        assert.deepStrictEqual(
          refused.map(({ status, body }) => [status, body.code]),
          Array.from({ length: 5 }, () => [409, "too_many_executions"])
        )
        assert.include(refused[0]?.body.detail, "organization")
        const of = (place: string, status: string) =>
          Effect.map(call("GET", `${place}?status=${status}`), ({ body }) =>
            body.map(({ id }: { readonly id: string }) => id)
          )
        const mine = yield* of(base, "starting")
        const theirs = yield* of(more, "starting")
        assert.sameMembers(
          [...mine, ...theirs],
          answers.filter(({ status }) => status === 202).map(({ body }) => body.id)
        )
        const place = mine.length > 0 ? base : more
        const [id] = mine.length > 0 ? mine : theirs
        yield* call("POST", `${place}/${id}/cancel`)
        yield* eventually("it is cancelled", of(place, "cancelled"), (ids) => ids.length > 0)
        assert.deepStrictEqual(yield* of(place, "cancelled"), [id])
        assert.notInclude(yield* of(place, "starting"), id)
        assert.strictEqual((yield* call("POST", more, { body })).status, 202)
        assert.strictEqual((yield* call("POST", base, { body })).status, 409)
      }),
    patience
  )
})

layer(planeWith({}, { containerSocket: "none" }), { excludeTestServices: true, timeout: "3 minutes" })(
  "an execution without an engine",
  (it) => {
    it.effect(
      "is accepted and says what is missing; after a deadline it fails, and gives back its place",
      () =>
        Effect.gen(function* () {
          const { sql } = yield* Plane
          yield* makeProject
          const made = yield* ask
          assert.deepStrictEqual([made.status, made.body.status], [202, "starting"])
          const waiting = yield* untilReason(made.body.id, "HostDependencyMissing")
          assert.include(String(waiting["message"]), "apt-get install")
          yield* anHourAgo(made.body.id, "lost_since")
          const over = yield* until(made.body.id, ({ finishedAt }) => finishedAt !== null, "given up")
          assert.deepStrictEqual(
            [over.status, over.errorCode, over.startedAt],
            ["failed", "start_failed", null]
          )
          assert.match(over.error, /No container could be made for 120 s.*apt-get install/)
          const told = yield* untilReason(made.body.id, "ExecutionFailed")
          assert.include(String(told["message"]), "start_failed")
          // Nothing is left to be done for it, and nothing is reserved any more.
          assert.strictEqual((yield* readyOf(made.body.id))["status"], "true")
          const [open] = yield* sql(
            "select count(*)::int as count from budget_entry where settled_at is null"
          )
          assert.strictEqual(open?.["count"], 0)
        }),
      patience
    )

    it.effect("get an environment's passwords and servers only when an admin says so", () =>
      Effect.gen(function* () {
        const { call, tenant } = yield* Plane
        const mine = yield* tenant()
        const projects = `/v1/orgs/${mine.slug}/projects`
        yield* call("POST", projects, { token: mine.adminKey, body: { name: "Jobs", slug: "jobs" } })
        const asked = (token: string, more: object) =>
          call("POST", `${projects}/jobs/executions`, {
            token,
            body: { image: "alpine:3", command: ["env"], region: "local", resources: small, ...more }
          })
        for (const token of [mine.member, mine.memberKey]) {
          const refused = yield* asked(token, { services: true })
          assert.deepStrictEqual([refused.status, refused.body.code], [403, "forbidden"])
          const made = yield* asked(token, {})
          assert.deepStrictEqual([made.status, made.body.services], [202, false], made.text)
        }
        const made = yield* asked(mine.adminKey, { services: true })
        assert.deepStrictEqual([made.status, made.body.services], [202, true], made.text)
        // A version of an app is code that gets the same passwords, and may print them.
        const deployed = yield* call("POST", `${projects}/jobs/deployments`, {
          token: mine.memberKey,
          body: { image: "alpine:3", command: ["env"] }
        })
        assert.deepStrictEqual([deployed.status, deployed.body.code], [403, "forbidden"])
      })
    )
  }
)
