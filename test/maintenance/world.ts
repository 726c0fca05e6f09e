/** Resources that the engine never sees, as they may look after a while, for maintenance to find. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { eventually } from "#test/setup/wait.ts"

const hourMs = 3_600_000
export const dayMs = 24 * hourMs
export const ago = (ms: number) => new Date(Date.now() - ms).toISOString()

interface Condition {
  readonly type: string
  readonly status: "true" | "false"
  readonly reason: string
  readonly message: string
  readonly since: string
}

interface Odd {
  readonly kind: string
  readonly name: string
  readonly environment?: string | null
  readonly spec?: object
  readonly status?: object
  readonly phase?: string
  readonly createdAt?: string
  readonly conditions?: ReadonlyArray<Condition>
}

const text = (value: string | null) => (value === null ? "null" : `'${value.replaceAll("'", "''")}'`)
const json = (value: unknown) => `${text(JSON.stringify(value))}::jsonb`

export interface Project {
  readonly orgId: string
  readonly projectId: string
  readonly path: string
}

/** A project of its own for each test. */
export const makeProject = Effect.fnUntraced(function* (slug: string) {
  const { call, sql } = yield* Plane
  const made = yield* call("POST", "/v1/orgs/main/projects", { body: { name: slug, slug } })
  assert.strictEqual(made.status, 201, made.text)
  const [row] = yield* sql(`select org_id as id from resource where uid = '${made.body.id}'`)
  const project: Project = {
    orgId: String(row?.["id"]),
    projectId: made.body.id,
    path: `/v1/orgs/main/projects/${slug}`
  }
  return project
})

/** A resource as the store would hold it, that no engine works on. Answers its uid. */
export const place = Effect.fnUntraced(function* ({ orgId, projectId }: Project, odd: Odd) {
  const { sql } = yield* Plane
  const uid = uuid()
  const { environment = "production", conditions = [], createdAt = ago(0) } = odd
  const stored = conditions.map(({ since, ...condition }) => ({
    ...condition,
    lastTransitionAt: since,
    observedGeneration: 1
  }))
  yield* sql(`
    insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, status, phase, conditions,
      managed_by, created_at)
    values ('${orgId}', '${uid}', '${odd.kind}', '${projectId}', ${text(environment)}, ${text(odd.name)}, '${uuid()}',
      ${json(odd.spec ?? {})}, ${odd.status === undefined ? "null" : json(odd.status)}, '${odd.phase ?? "ready"}',
      ${json(stored)}, 'api', '${createdAt}')`)
  return uid
})

const postgresOf = (server: string, certificateExpiresAt: string) => ({
  host: "127.0.0.1",
  port: 5432,
  dbName: "app",
  user: "app",
  server,
  certificateExpiresAt
})

/** A database of which nothing is wrong but what is said. */
export const database = (values: {
  readonly server?: string
  readonly expiresAt?: string
  readonly environment?: string
  readonly createdAt?: string
  readonly status?: object
  readonly spec?: object
}): Odd => ({
  kind: "Database",
  name: "main",
  environment: values.environment ?? "production",
  spec: { region: "elsewhere", ...values.spec },
  status: {
    ...postgresOf(values.server ?? "PostgreSQL 18.4", values.expiresAt ?? ago(-200 * dayMs)),
    ...values.status
  },
  createdAt: values.createdAt ?? ago(0)
})

export const ready: Condition = {
  type: "Ready",
  status: "true",
  reason: "Converged",
  message: "It is there",
  since: ago(0)
}

/** Looks at the project and waits until the run is over, with all that it decided on. */
export const look = Effect.fnUntraced(function* ({ path: base }: Project) {
  const { call } = yield* Plane
  const asked = yield* call("POST", `${base}/maintenance/runs`)
  assert.strictEqual(asked.status, 202, asked.text)
  const over = yield* eventually(
    "the run is over",
    call("GET", `${base}/maintenance/runs/${asked.body.id}`),
    ({ body }) =>
      body.finishedAt !== null &&
      body.actions.every((action: { readonly finishedAt: string | null }) => action.finishedAt !== null)
  )
  assert.strictEqual(over.body.status, "succeeded", over.text)
  return over.body
})

export const findings = Effect.fnUntraced(function* ({ path: base }: Project, state = "open") {
  const { call } = yield* Plane
  const { status, body, text } = yield* call("GET", `${base}/maintenance/findings?limit=100&state=${state}`)
  assert.strictEqual(status, 200, text)
  // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
  return body.items as ReadonlyArray<any>
})

/** Sets maintenance up and waits for its first run, which begins by itself. */
export const setUp = Effect.fnUntraced(function* ({ path: base }: Project, body: object = {}) {
  const { call } = yield* Plane
  const set = yield* call("PUT", `${base}/maintenance`, { body })
  assert.strictEqual(set.status, 200, set.text)
  yield* eventually(
    "the first run is over",
    call("GET", `${base}/maintenance/runs`),
    ({ body: { items } }) => items.length > 0 && items.at(-1).finishedAt !== null
  )
})
