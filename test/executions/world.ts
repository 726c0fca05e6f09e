/** A control plane over a real container engine, and executions on it. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Settings } from "#src/config.ts"
import { ExecutionOptions } from "#src/executions/options.ts"
import { containerEngine, type Engine } from "#test/setup/containers.ts"
import { type Answer, Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

export class Containers extends Context.Service<Containers, Engine>()("test/Containers") {
  static readonly layer = Layer.effect(Containers, containerEngine)
}

export const executionPlane = (
  values: Partial<ExecutionOptions> = {},
  variables: (engine: Engine) => Readonly<Record<string, string>> = () => ({})
) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const engine = yield* Containers
      const { socket, registry } = engine
      return planeWith(
        values,
        { containerSocket: socket },
        { SVC_REGISTRIES: `${registry},docker.io,*.pkg.dev`, ...variables(engine) }
      )
    })
  ).pipe(Layer.provideMerge(Containers.layer))

/** A control plane with times and bounds of its own. */
export const planeWith = (
  values: Partial<ExecutionOptions>,
  settings: Partial<Settings>,
  variables: Readonly<Record<string, string>> = {}
) =>
  Layer.unwrap(
    Effect.map(ExecutionOptions, (defaults) =>
      testPlane(settings, variables).pipe(
        Layer.provide(Layer.succeed(ExecutionOptions, { ...defaults, ...values }))
      )
    )
  )

export const project = "/v1/orgs/main/projects/jobs"
export const base = `${project}/executions`

export const makeProject = Effect.gen(function* () {
  const { call } = yield* Plane
  yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Jobs", slug: "jobs" } })
})

export const small = { cpus: 0.5, memoryMb: 64 }

/** It has so much time that only those that are given less run out of it. */
export const create = Effect.fnUntraced(function* (body: object) {
  const { call } = yield* Plane
  const { openImage } = yield* Containers
  const made = yield* call("POST", base, {
    body: { image: openImage, region: "local", resources: small, timeoutSeconds: 1_800, ...body }
  })
  if (made.status !== 202) return yield* Effect.die(new Error(made.text))
  return String(made.body.id)
})

export const read = (id: string) => Effect.flatMap(Plane, ({ call }) => call("GET", `${base}/${id}`))

export const until = (id: string, holds: (body: Answer["body"]) => boolean, what: string) =>
  eventually(
    what,
    Effect.map(read(id), ({ body }) => body),
    holds
  )

/** Once it has ended and nothing is left of its container. */
export const ended = (id: string) =>
  until(id, ({ finishedAt, cleanupStatus }) => finishedAt !== null && cleanupStatus === "confirmed", "ended")
export const isRunning = (id: string) => until(id, ({ status }) => status === "running", "running")

/** As if that had been an hour before: a deadline that counts from then is over, and none had to be waited for. */
export const anHourAgo = Effect.fnUntraced(function* (
  id: string,
  moment: "begun_at" | "turn_at" | "started_at" | "stop_at" | "lost_since",
  condition = "true"
) {
  const { sql } = yield* Plane
  const moved = sql(
    `update execution set ${moment} = ${moment} - interval '1 hour'
     where uid = '${id}' and ${moment} is not null and ${condition} returning uid`
  )
  yield* eventually(`it has its ${moment}`, moved, (rows) => rows.length > 0)
})

/** What operators are told of it: the condition that matters, with its reason and its sentence. */
export const readyOf = Effect.fnUntraced(function* (id: string) {
  const { sql } = yield* Plane
  const [row] = yield* sql(
    `select c->>'status' as status, c->>'reason' as reason, c->>'message' as message
     from resource, jsonb_array_elements(conditions) c where uid = '${id}' and c->>'type' = 'Ready'`
  )
  return row ?? {}
})

export const untilReason = (id: string, reason: string) =>
  eventually(reason, readyOf(id), (ready) => ready["reason"] === reason)

interface Entry {
  readonly id: string
  readonly stream: string
  readonly text: string
}
export const entries = Effect.fnUntraced(function* (id: string) {
  const { call } = yield* Plane
  const all: Array<Entry> = []
  for (let cursor: string | null = ""; cursor !== null; ) {
    const page: Answer = yield* call(
      "GET",
      `${base}/${id}/logs?limit=1000${cursor === "" ? "" : `&cursor=${cursor}`}`
    )
    all.push(...page.body.items)
    cursor = page.body.nextCursor
  }
  return all
})
/** Once it has printed this. One that is said to run may not have come to its first line. */
export const hasPrinted = (id: string, text: string) =>
  eventually(`it has printed ${text}`, printed(id), (all) => all.includes(text))

export const printed = (id: string, stream = "stdout") =>
  Effect.map(entries(id), (all) =>
    all
      .filter((entry) => entry.stream === stream)
      .map(({ text }) => text)
      .join("")
  )
