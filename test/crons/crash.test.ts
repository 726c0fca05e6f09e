/** Control planes as programs of their own: killed without warning during a run, and with clocks that are wrong. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { campaign } from "#test/campaigns/campaign.ts"
import { makePlane, type Plane, planesOnSharedServer } from "#test/faults/planes.ts"
import { until } from "#test/setup/wait.ts"
import { type Received, receiver } from "./receiver.ts"
import { type StoreClock, storeClock } from "./store-clock.ts"
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

campaign(
  it.live,
  "cron-kills",
  "a killed control plane's runs go on or end and say why; with clocks hours off each time is run once, when it has come",
  { rounds: 0, roundMs: 900_000 },
  () =>
    Effect.gen(function* () {
      const { base, store, planes } = yield* planesOnSharedServer
      let silent = true
      const first = yield* receiver(() => ({ status: 200, afterMs: silent ? 3_600_000 : 0 }))
      const came: Array<{ readonly request: Received; readonly at: number }> = []
      let storeNow = Date.now
      const second = yield* receiver((request) => {
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
        // One is ahead, until it jumps back; the other one is behind.
        const jumping = await makePlane(base, store.url, clock(hour, 3 * hour))
        const behind = await makePlane(base, store.url, clock(-hour))
        planes.push(jumping, behind)
        await jumping.start()
        await jumping.call("POST", projects, { name: "Timed", slug: "timed" })
        const callAt = (origin: string) =>
          jumping.call("PATCH", `${projects}/timed/environments/production`, { origin })

        await callAt(first.origin)
        const again = async () => {
          await until("every run has called the app", () => first.received.length === 6)
          await jumping.kill("SIGKILL")
          silent = false
          await jumping.start()
        }
        await killed(jumping, first.received, again, store.url)

        await callAt(second.origin)
        await behind.start()
        await timely(jumping, behind, moved, came)
      })
    }).pipe(Effect.scoped)
)

/** Runs whose process is killed by `again`, which starts another one. */
const killed = async (
  plane: Plane,
  received: ReadonlyArray<Received>,
  again: () => Promise<void>,
  storeUrl: string
) => {
  const make = async (name: string, maxAttempts: number) => {
    const { status, body } = await plane.call("POST", crons, {
      name,
      schedule: rarely,
      target: { kind: "http", path: `/${name}` },
      retry: { maxAttempts, initialDelaySeconds: 1 },
      concurrencyPolicy: "allow"
    })
    assert.strictEqual(status, 201, JSON.stringify(body))
    const runs = Array.from(
      { length: 3 },
      async () => (await plane.call("POST", `${crons}/${body.id}/trigger`)).body as Run
    )
    return { id: body.id as string, runs: await Promise.all(runs) }
  }
  const patient = await make("patient", 3)
  const single = await make("single", 1)
  await again()
  const sql = postgres(storeUrl, { max: 1, onnotice: () => {} })
  try {
    // The leases of the dead end.
    await sql`update cron_run set due_at = now() where lease_token is not null`
    await sql`select pg_notify('svc_cron', '')`
  } finally {
    await sql.end()
  }
  const ended = async (job: string, { id }: Run) =>
    until(`the end of ${id}`, async () => {
      const { body } = await plane.call("GET", `${crons}/${job}/runs/${id}`)
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
  const calls = received.map(({ path, text }) => `${path} ${once(text).id} ${once(text).attempt}`)
  const expected = [
    ...patient.runs.flatMap(({ id }) => [`/patient ${id} 1`, `/patient ${id} 2`]),
    ...single.runs.map(({ id }) => `/single ${id} 1`)
  ]
  assert.deepStrictEqual(calls.sort(), expected.sort())
}

/** Jobs of every minute, while one process is behind and the other one jumps. */
const timely = async (
  jumping: Plane,
  behind: Plane,
  moved: StoreClock,
  came: ReadonlyArray<{ readonly request: Received; readonly at: number }>
) => {
  const minute = 60_000
  const made: Array<string> = []
  await moved.forwardTo(8_000)
  for (let i = 0; i < 6; i++) {
    const { status, body } = await (i % 2 === 0 ? jumping : behind).call("POST", crons, {
      name: `job-${i}`,
      schedule: "* * * * *",
      target: { kind: "http", path: `/${i}` }
    })
    assert.strictEqual(status, 201, JSON.stringify(body))
    made.push(body.id)
  }
  const next = Math.ceil(moved.now() / minute) * minute
  const runsOf = async (id: string) =>
    (await behind.call("GET", `${crons}/${id}/runs`)).body.items as ReadonlyArray<Run>
  for (const round of [1, 2, 3]) {
    await until(`${round} times have come for every job`, async () => {
      const succeeded = async (id: string) =>
        (await runsOf(id)).filter(({ status }) => status === "succeeded").length
      return (await Promise.all(made.map(succeeded))).every((count) => count >= round)
    })
    // It goes on, with another idea of the time.
    if (round === 1) jumping.signal("SIGUSR2")
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
}
