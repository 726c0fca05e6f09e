/** A project that takes measurements, and what browsers send it. */
import { randomUUID } from "node:crypto"
import * as Effect from "effect/Effect"
import { Plane } from "#test/setup/control-plane.ts"

export const origin = "https://shop.example.com"

export interface Site {
  readonly org: string
  readonly project: string
  readonly base: string
  readonly token: string
  readonly projectRef: string
  /** Path of the intake. */
  readonly collect: string
}

/** In an organization of its own. */
export const measuredProject = (settings: Record<string, unknown> = {}) =>
  Effect.gen(function* () {
    const { call, tenant } = yield* Plane
    const { slug: org, adminKey: token } = yield* tenant()
    const project = `shop-${randomUUID().slice(0, 8)}`
    yield* call("POST", `/v1/orgs/${org}/projects`, { token, body: { name: "Shop", slug: project } })
    const base = `/v1/orgs/${org}/projects/${project}/speed-insights`
    const body = { enabled: true, allowedOrigins: [origin], ...settings }
    const configured = yield* call("PUT", base, { token, body })
    const projectRef: string = configured.body.projectRef
    const collect = `/v1/speed-insights/collect/${projectRef}`
    return { org, project, base, token, projectRef, collect } satisfies Site
  })

export const event = (more: Record<string, unknown> = {}) => ({
  eventId: randomUUID(),
  metric: "LCP",
  value: 1_200,
  timestamp: new Date().toISOString(),
  route: "/",
  device: "desktop",
  navigationType: "navigate",
  ...more
})

export const batchOf = (events: ReadonlyArray<object>, more: Record<string, unknown> = {}) => ({
  schemaVersion: 1,
  batchId: randomUUID(),
  environment: "production",
  sdkVersion: "1.0.0",
  events,
  ...more
})

/** As a page does that is going away. */
export const send = (site: Pick<Site, "collect">, batch: unknown, headers: Record<string, string> = {}) =>
  Effect.flatMap(Plane, ({ call }) =>
    call("POST", site.collect, {
      token: null,
      raw: typeof batch === "string" ? batch : JSON.stringify(batch),
      headers: { "content-type": "text/plain", origin, ...headers }
    })
  )

export const query = ({ base, token }: Site, body: object = {}) =>
  Effect.flatMap(Plane, ({ call }) => call("POST", `${base}/query`, { token, body }))
