/** Control planes as programs of their own: killed without warning during a run, and with clocks that are wrong. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { makePlane, planesWorld } from "#test/faults/planes.ts"
import { until } from "#test/setup/wait.ts"
import { type Received, receiver } from "./receiver.ts"
import { storeClock } from "./store-clock.ts"
import { rarely } from "./world.ts"

const projects = "/v1/orgs/main/projects"
const crons = `${projects}/timed/crons`
const once = (text: string) => JSON.parse(text) as { id: string; attempt: number; scheduledAt: string }

interface Run {
  readonly id: string
  readonly status: string
  readonly scheduledAt: string
  readonly reason: string | null
  readonly attempts: ReadonlyArray<{ readonly statusCode: number | null; readonly error: string | null }>
}

it.live(
  "a run whose control plane is killed goes on in another one, as its next attempt, or ends and says why",
  () =>
    Effect.gen(function* () {
      const { base, store, planes } = yield* planesWorld
      let silent = true
      const web = yield* receiver(() => ({ status: 200, afterMs: silent ? 3_600_000 : 0 }))
      yield* Effect.promise(async () => {
        const start = async () => {
          const plane = await makePlane(base, store.url)
          planes.push(plane)
          await plane.start()
          return plane
        }
        const first = await start()
        const second = await start()
        await second.call("POST", projects, { name: "Timed", slug: "timed" })
        await second.call("PATCH", `${projects}/timed/environments/production`, { origin: web.origin })
        const make = async (name: string, maxAttempts: number) => {
          const { status, body } = await second.call("POST", crons, {
            name,
            schedule: rarely,
            target: { kind: "http", path: `/${name}` },
            retry: { maxAttempts, initialDelaySeconds: 1 },
            concurrencyPolicy: "allow"
          })
          assert.strictEqual(status, 201, JSON.stringify(body))
          const runs = Array.from({ length: 6 }, async (_, i) => {
            const plane = i % 2 === 0 ? first : second
            return (await plane.call("POST", `${crons}/${body.id}/trigger`)).body as Run
          })
          return { id: body.id as string, runs: await Promise.all(runs) }
        }
        const patient = await make("patient", 3)
        const single = await make("single", 1)
        await until("every run has called the app", () => web.received.length === 12)
        await Promise.all([first.kill("SIGKILL"), second.kill("SIGKILL")])

        silent = false
        const third = await start()
        const sql = postgres(store.url, { max: 1, onnotice: () => {} })
        try {
          // The leases of the dead end.
          await sql`update cron_run set due_at = now() where lease_token is not null`
          await sql`select pg_notify('svc_cron', '')`
        } finally {
          await sql.end()
        }
        const ended = async (job: string, { id }: Run) =>
          until(`the end of ${id}`, async () => {
            const { body } = await third.call("GET", `${crons}/${job}/runs/${id}`)
            return body.finishedAt === null ? undefined : (body as Run)
          })
        for (const run of patient.runs) {
          const { status, attempts } = await ended(patient.id, run)
          assert.strictEqual(status, "succeeded")
          assert.deepStrictEqual(
            attempts.map(({ statusCode }) => statusCode),
            [null, 200]
          )
          assert.match(attempts[0]?.error ?? "", /ended before there was an answer/)
        }
        for (const run of single.runs) {
          const { status, reason, attempts } = await ended(single.id, run)
          assert.deepStrictEqual([status, attempts.length], ["failed", 1])
          assert.match(reason ?? "", /ended before there was an answer/)
        }
        // Each attempt once, under the same id.
        const calls = web.received.map(({ path, text }) => `${path} ${once(text).id} ${once(text).attempt}`)
        const expected = [
          ...patient.runs.flatMap(({ id }) => [`/patient ${id} 1`, `/patient ${id} 2`]),
          ...single.runs.map(({ id }) => `/single ${id} 1`)
        ]
        assert.deepStrictEqual(calls.sort(), expected.sort())
      })
    }).pipe(Effect.scoped),
  900_000
)

it.live(
  "control planes whose clocks are hours off, or jump, run each time once and when it has come",
  () =>
    Effect.gen(function* () {
      const { base, store, planes } = yield* planesWorld
      const minute = 60_000
      const came: Array<{ readonly request: Received; readonly at: number }> = []
      let storeNow = Date.now
      const web = yield* receiver((request) => {
        came.push({ request, at: storeNow() })
        return undefined
      })
      yield* Effect.promise(async () => {
        const moved = await storeClock(store.url)
        storeNow = moved.now
        const clock = (offset: number, jump = 0) => ({
          NODE_OPTIONS: `--import=${new URL(`../faults/engine/clock.ts?offset=${offset}&jump=${jump}`, import.meta.url).href}`
        })
        const hour = 3_600_000
        for (const wrong of [clock(hour), clock(-hour), clock(0, 3 * hour)]) {
          const plane = await makePlane(base, store.url, wrong)
          planes.push(plane)
          await plane.start()
        }
        const [ahead, behind, jumping] = planes
        if (ahead === undefined || behind === undefined || jumping === undefined) throw new Error("no planes")
        await ahead.call("POST", projects, { name: "Timed", slug: "timed" })
        await ahead.call("PATCH", `${projects}/timed/environments/production`, { origin: web.origin })
        const made: Array<string> = []
        await moved.forwardTo(8_000)
        for (let i = 0; i < 6; i++) {
          const { status, body } = await planes[i % 3]!.call("POST", crons, {
            name: `job-${i}`,
            schedule: "* * * * *",
            target: { kind: "http", path: `/${i}` }
          })
          assert.strictEqual(status, 201, JSON.stringify(body))
          made.push(body.id)
        }
        const next = Math.ceil(moved.now() / minute) * minute
        // It goes on, with another idea of the time.
        jumping.signal("SIGUSR2")
        const runsOf = async (id: string) =>
          (await behind.call("GET", `${crons}/${id}/runs`)).body.items as ReadonlyArray<Run>
        for (const round of [1, 2, 3]) {
          await until(`${round} times have come for every job`, async () => {
            const succeeded = async (id: string) =>
              (await runsOf(id)).filter(({ status }) => status === "succeeded").length
            return (await Promise.all(made.map(succeeded))).every((count) => count >= round)
          })
          if (round < 3) await moved.forwardTo(2_000)
        }
        const times = new Map<string, Array<string>>()
        for (const { request, at } of came) {
          const { scheduledAt } = once(request.text)
          times.set(request.path, [...(times.get(request.path) ?? []), scheduledAt])
          assert.isAtLeast(at, Date.parse(scheduledAt), "it was not called before its time")
          // Apps refuse what is more than five minutes off. Our own clock may have been put forward on its way here.
          const signedAt = Number(request.headers["webhook-timestamp"]) * 1_000
          assert.isBelow(Math.abs(signedAt - at), 240_000, "it was signed by a clock that is right")
        }
        assert.strictEqual(times.size, made.length)
        for (const scheduled of times.values()) {
          assert.strictEqual(new Set(scheduled).size, scheduled.length, "no time was run twice")
          assert.isTrue(scheduled.every((at) => Date.parse(at) % minute === 0))
          assert.isAtMost(Math.min(...scheduled.map((at) => Date.parse(at))), next + minute)
        }
        for (const id of made) {
          const statuses = (await runsOf(id)).map(({ status }) => status)
          assert.notInclude(statuses, "skipped")
          assert.notInclude(statuses, "failed")
        }
      })
    }).pipe(Effect.scoped),
  900_000
)
