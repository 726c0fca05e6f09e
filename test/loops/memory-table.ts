/** Jobs in memory: what the suite is right about here, it is right about the loop alone. */
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import type { LeasedLoop } from "#src/loops/leased.ts"
import { uuid } from "#test/setup/fixtures.ts"
import type { Table } from "./table.ts"

export interface MemoryJob {
  readonly id: string
  readonly orgId: string
  readonly token: number
}

interface Row {
  readonly id: string
  readonly orgId: string
  dueAt: number
  token: number | undefined
  done: boolean
}

const leaseMs = 40_000

export const memoryTable = Effect.gen(function* () {
  const rows = new Map<string, Row>()
  const listeners = new Set<Queue.Queue<void>>()
  let now = 1_800_000_000_000
  let token = 0
  const tell = Effect.sync(() => {
    for (const one of listeners) Queue.offerUnsafe(one, undefined)
  })
  const mine = ({ id, token }: MemoryJob) => {
    const row = rows.get(id)
    return row?.token === token && !row.done ? row : undefined
  }
  const open = () => [...rows.values()].filter(({ done }) => !done).sort((a, b) => a.dueAt - b.dueAt)

  const port: LeasedLoop<MemoryJob, "done"> = {
    name: "memory",
    does: "work on the jobs of a test",
    idOf: ({ id }) => id,
    orgOf: ({ orgId }) => orgId,
    atOnce: 16,
    leaseMs,
    claim: ({ most, orgs }) =>
      Effect.sync(() => {
        const taken = new Map<string, number>()
        const jobs: Array<MemoryJob> = []
        for (const row of open()) {
          if (jobs.length === most) break
          const n = taken.get(row.orgId) ?? 0
          if (row.dueAt > now || n >= (orgs.holders.get(row.orgId)?.room ?? orgs.others)) continue
          taken.set(row.orgId, n + 1)
          row.token = ++token
          row.dueAt = now + leaseMs
          jobs.push({ id: row.id, orgId: row.orgId, token })
        }
        return jobs
      }),
    run: () => Effect.succeed("done"),
    settle: (job) =>
      Effect.sync(() => {
        const row = mine(job)
        if (row === undefined) return
        row.done = true
        row.token = undefined
      }),
    renew: (jobs) =>
      Effect.sync(
        () =>
          new Set(
            jobs.flatMap((job) => {
              const row = mine(job)
              if (row === undefined) return []
              row.dueAt = now + leaseMs
              return [job.id]
            })
          )
      ),
    release: (jobs) =>
      Effect.andThen(
        Effect.sync(() => {
          for (const job of jobs) {
            const row = mine(job)
            if (row === undefined) continue
            row.token = undefined
            row.dueAt = now
          }
        }),
        tell
      ),
    nextIn: Effect.sync(() => {
      const [first] = open()
      return first === undefined ? undefined : first.dueAt - now
    }),
    wake: Stream.unwrap(
      Effect.map(
        Effect.acquireRelease(
          Effect.tap(Queue.unbounded<void>(), (queue) => Effect.sync(() => listeners.add(queue))),
          (queue) => Effect.sync(() => listeners.delete(queue))
        ),
        Stream.fromQueue
      )
    )
  }
  const table: Table<MemoryJob, "done"> = {
    port,
    makeOrganization: Effect.sync(uuid),
    add: (orgId, dueIn = 0) =>
      Effect.suspend(() => {
        const id = uuid()
        rows.set(id, { id, orgId, dueAt: now + dueIn, token: undefined, done: false })
        return Effect.as(tell, id)
      }),
    stored: (id) =>
      Effect.sync(() => {
        const row = rows.get(id)!
        return { leased: row.token !== undefined, done: row.done, dueIn: row.dueAt - now }
      }),
    advance: (ms) =>
      Effect.sync(() => {
        now += ms
      }),
    clear: Effect.sync(() => rows.clear()),
    succeeded: () => "done"
  }
  return table
})
