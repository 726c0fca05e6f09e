/** Environments with an app behind them. */
import { randomUUID } from "node:crypto"
import type * as http from "node:http"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"
import { TestEdge, testApp } from "#test/setup/edge.ts"
import { eventually } from "#test/setup/wait.ts"

/** What the app was asked, in JSON. */
export const echo: http.RequestListener = (request, response) => {
  const { method, url, headers, rawHeaders } = request
  response.setHeader("content-type", "application/json")
  response.end(JSON.stringify({ method, url, headers, rawHeaders }))
}

/** A new project whose environment `production` has this origin, or none; answers once it has its address. */
export const anEnvironment = Effect.fnUntraced(function* (origin: string | null) {
  const { call, sql } = yield* Plane
  const [{ slug: org } = { slug: "" }] = (yield* sql(
    "select slug from organization order by created_at limit 1"
  )) as ReadonlyArray<{ slug: string }>
  const slug = `p-${randomUUID().slice(0, 8)}`
  const project = yield* call("POST", `/v1/orgs/${org}/projects`, { body: { slug, name: slug } })
  const environments = `/v1/orgs/${org}/projects/${project.body.id}/environments`
  if (origin !== null) yield* call("PATCH", `${environments}/production`, { body: { origin } })
  const { body } = yield* eventually(
    "the environment has an address",
    call("GET", environments),
    ({ body }) => body.find((one: { slug: string }) => one.slug === "production")?.address != null
  )
  const found = body.find((one: { slug: string }) => one.slug === "production")
  return {
    org,
    project: project.body,
    environments,
    uid: found.id as string,
    address: found.address as string,
    host: new URL(found.address).hostname
  }
})

/** The same with an app of this process, once it answers. */
export const anApp = Effect.fnUntraced(function* (
  answer: http.RequestListener,
  prepare?: (server: http.Server) => void
) {
  const app = yield* testApp(answer, prepare)
  const environment = yield* anEnvironment(app.origin)
  const { request } = yield* TestEdge
  yield* eventually(
    "the edge serves the app",
    request(environment.host, "/"),
    ({ status }) => status !== 404 && status !== 503
  )
  return { ...environment, app }
})

/** Answers once the edge serves all that is stored by now. */
export const inForce = Effect.gen(function* () {
  const { sql } = yield* Plane
  const [row] = yield* sql(
    "select n::text, pg_notify('svc_edge', 'ask ' || n) from nextval('edge_question') n"
  )
  yield* eventually(
    "the edge has taken up everything",
    sql(`select 1 from edge_node where alive_until > now() and answered >= ${row?.["n"]}`),
    (rows) => rows.length > 0
  )
})
