/** A control plane whose gateways reach stand-ins: `first` before `second` for every model, in OpenAI's dialect. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { type StandIn, standIn } from "./upstream.ts"

/** Of the stand-ins; where it is seen, a secret has got out. */
export const providerKey = "sk-provider-secret-key"

export interface StandIns {
  readonly first: StandIn
  readonly second: StandIn
  readonly anthropic: StandIn
}
export class Providers extends Context.Service<Providers, StandIns>()("test/Providers") {}

const entry = (name: string, address: string, more: object = {}) => ({
  name,
  dialect: "openai",
  address,
  model: `${name}-real-model`,
  key: providerKey,
  // A dollar for a thousand tokens of input, and two for as many of output.
  prices: { input: 1_000, output: 2_000, cachedInput: 500 },
  limits: { outputTokens: 100, idleSeconds: 1, imageTokens: 2_000 },
  ...more
})

/** `svc/fast`: first, then second. `svc/balanced`: the one of Anthropic's dialect. `svc/reasoning`: nobody. */
export const upstreamsOf = ({ first, second, anthropic }: StandIns, more: object = {}) => ({
  "svc/fast": [entry("first", first.url, more), entry("second", second.url)],
  "svc/balanced": [entry("anthropic", anthropic.url, { dialect: "anthropic", imageUrls: true })]
})

/** `more` is of the first upstream. */
export const worldLayer = (variables: Readonly<Record<string, string>> = {}, more: object = {}) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const standIns = { first: yield* standIn, second: yield* standIn, anthropic: yield* standIn }
      return Layer.merge(
        Layer.succeed(Providers, standIns),
        testPlane({}, { SVC_AI_UPSTREAMS: JSON.stringify(upstreamsOf(standIns, more)), ...variables })
      )
    })
  )

let gateways = 0

export interface TestGateway {
  readonly name: string
  readonly id: string
  /** Of OpenAI's clients. */
  readonly baseURL: string
  readonly apiKey: string
  readonly keyId: string
  readonly path: string
  readonly token: string
}

/** In an organization of its own. */
export const newGateway = Effect.fnUntraced(function* (spec: Record<string, unknown> = {}) {
  const plane = yield* Plane
  const tenant = yield* plane.tenant()
  const project = yield* plane.call("POST", `/v1/orgs/${tenant.id}/projects`, {
    token: tenant.owner,
    body: { name: "shop", slug: `p-${tenant.slug.slice(-12)}` }
  })
  const name = `ai-${++gateways}`
  const base = `/v1/orgs/${tenant.id}/projects/${project.body.id}/ai-gateways`
  const made = yield* plane.call("POST", base, {
    token: tenant.owner,
    body: {
      name,
      allowedModels: ["svc/fast", "svc/balanced", "svc/reasoning"],
      monthlyBudgetUsd: 100,
      ...spec
    }
  })
  const path = `${base}/${made.body.id}`
  const key = yield* plane.call("POST", `${path}/keys`, { token: tenant.owner, body: { name: "app" } })
  const gateway: TestGateway = {
    name,
    id: made.body.id,
    baseURL: `${plane.url}/v1/runtime/ai/${name}`,
    apiKey: key.body.secret,
    keyId: key.body.id,
    path,
    token: tenant.owner
  }
  return gateway
})

export interface CallRow {
  readonly status: number
  readonly upstream: string | null
  readonly inputTokens: number
  readonly outputTokens: number
  readonly estimated: boolean
  readonly costUsd: number
  readonly keyId: string | null
}

/** The calls of a gateway, newest first, once there are so many and nothing is held any more. */
export const settled = Effect.fnUntraced(function* ({ path, token }: TestGateway, calls: number) {
  const plane = yield* Plane
  const usage = plane.call("GET", `${path}/usage`, { token })
  const { body } = yield* eventually(
    `${calls} calls are settled`,
    usage,
    (answer) => answer.body.requests === calls && answer.body.reservedUsd === 0
  )
  const listed = yield* plane.call("GET", `${path}/requests`, { token })
  const items: ReadonlyArray<CallRow> = listed.body.items
  return { usage: body, calls: items }
})
