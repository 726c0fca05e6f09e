// biome-ignore-all lint/suspicious/noExplicitAny: objects of Stripe's, whatever is in them.
/**
 * A server that stands in for the part of Stripe's API that the platform uses. It keeps state by account: what was made is
 * found again, and a key of another account does not find it. It judges keys by the rights they have, takes one version of
 * the API only, keeps answers by idempotency key (the same key with other parameters is refused, a failure is kept like a
 * success), pages lists by id, and fails in the ways it is told to. Events are made and signed here, by the official
 * library; whoever tests sends them, in what order and as often as it wants.
 *
 * What it does not do, or does otherwise than Stripe's documentation says:
 * - No object but products, prices, customers, checkout sessions, portal sessions, subscriptions and webhook endpoints; of
 *   these only the fields that are read here, no `expand`, no search. Parameters are checked only where a test needs it.
 * - Subscriptions are put here by tests: no checkout is ever paid, no clock runs, nothing is invoiced.
 * - Idempotency keys never expire, and are kept by account, whichever key of it asked.
 * - Rights are none, read or write for each kind of object. Which error a lack of rights is, is documented loosely: it is
 *   403 `invalid_request_error` here.
 * - No rate limit of its own, and no retries of webhooks.
 */
import { randomBytes } from "node:crypto"
import * as http from "node:http"
import type { AddressInfo } from "node:net"
import * as Effect from "effect/Effect"
import Stripe from "stripe"

export type Row = Record<string, any>
export type Area =
  | "products"
  | "prices"
  | "customers"
  | "checkout_sessions"
  | "subscriptions"
  | "billing_portal"
  | "webhook_endpoints"
  | "balance"
export type Rights = Partial<Record<Area, "read" | "write">>

/** What an app needs, and no more. */
export const usualRights: Rights = {
  products: "write",
  prices: "write",
  customers: "write",
  checkout_sessions: "write",
  subscriptions: "write",
  billing_portal: "write"
}

export interface Call {
  readonly method: string
  readonly path: string
  readonly key: string
  readonly idempotencyKey: string | undefined
  readonly params: Row
}

export interface Fault {
  /**
   * A status: nothing happens and it is answered. `hang`: no answer. `cut`: the connection ends. `late`: it happens, and 500
   * is answered. `lost`: it happens, and the connection ends before the answer. `slow`: it happens, and is answered when
   * `until` comes.
   */
  readonly kind: number | "hang" | "cut" | "late" | "lost" | "slow"
  readonly until?: Promise<void>
  readonly times?: number
  readonly of?: (call: Call) => boolean
  readonly headers?: Record<string, string>
}

interface Kept {
  readonly request: string
  readonly status: number
  readonly body: string
}

const version = "2026-10-28.endive"
const kinds: Readonly<Record<string, { area: Area; prefix: string; object: string }>> = {
  products: { area: "products", prefix: "prod", object: "product" },
  prices: { area: "prices", prefix: "price", object: "price" },
  customers: { area: "customers", prefix: "cus", object: "customer" },
  "checkout/sessions": { area: "checkout_sessions", prefix: "cs_test", object: "checkout.session" },
  subscriptions: { area: "subscriptions", prefix: "sub", object: "subscription" },
  "billing_portal/sessions": { area: "billing_portal", prefix: "bps", object: "billing_portal.session" },
  "billing_portal/configurations": {
    area: "billing_portal",
    prefix: "bpc",
    object: "billing_portal.configuration"
  },
  webhook_endpoints: { area: "webhook_endpoints", prefix: "we", object: "webhook_endpoint" }
}
const booleans = ["active", "cancel_at_period_end", "disabled"]
const integers = ["unit_amount", "quantity"]

class Refusal {
  readonly status: number
  readonly error: Row
  constructor(status: number, error: Row) {
    this.status = status
    this.error = error
  }
}
const refuse = (status: number, message: string, more: Row = {}) =>
  new Refusal(status, { type: "invalid_request_error", message, ...more })

export class Account {
  readonly rows = new Map(Object.keys(kinds).map((kind) => [kind, [] as Array<Row>]))
  readonly kept = new Map<string, Kept>()
  /** The newest last. */
  of(kind: string): Array<Row> {
    const rows = this.rows.get(kind)
    if (rows === undefined) throw new Error(`there is no kind ${kind}`)
    return rows
  }
  add(kind: string, row: Row): Row {
    const { prefix, object } = kinds[kind] ?? refuseKind(kind)
    const made = {
      id: `${prefix}_${randomBytes(9).toString("hex")}`,
      object,
      created: Math.floor(Date.now() / 1_000),
      livemode: false,
      metadata: {},
      ...row
    }
    this.of(kind).push(made)
    return made
  }
  subscription(row: Row = {}): Row {
    const { price, ...more } = row
    const item = { id: "si_1", object: "subscription_item", price, current_period_end: 1_800_000_000 }
    return this.add("subscriptions", {
      status: "active",
      cancel_at_period_end: false,
      customer: null,
      items: { object: "list", data: [item], has_more: false },
      ...more
    })
  }
}
const refuseKind = (kind: string): never => {
  throw new Error(`there is no kind ${kind}`)
}

/** `a[b][0][c]=d`, as Stripe's clients write it. */
const parsed = (text: string): Row => {
  const out: Row = {}
  for (const [name, value] of new URLSearchParams(text)) {
    const path = name.replaceAll("]", "").split("[")
    let at: any = out
    for (const [i, part] of path.entries()) {
      const next = path[i + 1]
      if (next === undefined) {
        at[part] = booleans.includes(part)
          ? value === "true"
          : integers.includes(part) && /^-?\d+$/.test(value)
            ? Number(value)
            : value
      } else at = at[part] ??= /^\d+$/.test(next) ? [] : {}
    }
  }
  return out
}

export class StandIn {
  readonly calls: Array<Call> = []
  private readonly accounts = new Map<string, Account>()
  private readonly keys = new Map<string, { account: Account; rights: Rights }>()
  private faults: Array<Fault & { left: number }> = []
  private readonly library = new Stripe("none")

  readonly url: string
  constructor(url: string) {
    this.url = url
  }

  account(name = "acct_main"): Account {
    const known = this.accounts.get(name) ?? new Account()
    this.accounts.set(name, known)
    return known
  }
  key(rights: Rights = usualRights, account = "acct_main"): string {
    const key = `rk_test_${randomBytes(12).toString("hex")}`
    this.keys.set(key, { account: this.account(account), rights })
    return key
  }
  grant(key: string, rights: Rights): void {
    const known = this.keys.get(key)
    if (known !== undefined) this.keys.set(key, { ...known, rights })
  }
  revoke(key: string): void {
    this.keys.delete(key)
  }
  fail(fault: Fault): void {
    this.faults.push({ ...fault, left: fault.times ?? 1 })
  }
  heal(): void {
    this.faults = []
  }
  madeBy(path: string): number {
    return this.calls.filter((call) => call.method === "POST" && call.path === path).length
  }

  /** The text of an event about an object, as it is now. */
  event(type: string, object: Row, more: Row = {}): string {
    return JSON.stringify({
      id: `evt_${randomBytes(9).toString("hex")}`,
      object: "event",
      type,
      created: Math.floor(Date.now() / 1_000),
      livemode: false,
      api_version: version,
      data: { object },
      ...more
    })
  }
  sign(payload: string, secret: string, timestamp = Math.floor(Date.now() / 1_000)): string {
    return this.library.webhooks.generateTestHeaderString({ payload, secret, timestamp })
  }

  readonly serve: http.RequestListener = async (request, response) => {
    let body = ""
    for await (const chunk of request) body += chunk
    const { pathname, searchParams } = new URL(request.url ?? "/", this.url)
    const call: Call = {
      method: request.method ?? "",
      path: pathname,
      key: /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1] ?? "",
      idempotencyKey: request.headers["idempotency-key"]?.toString(),
      params: parsed(body)
    }
    this.calls.push(call)
    const answer = (status: number, text: string, headers: Record<string, string> = {}) =>
      response.writeHead(status, { "content-type": "application/json", ...headers }).end(text)
    const fault = this.faults.find(({ left, of }) => left > 0 && (of === undefined || of(call)))
    if (fault !== undefined) {
      fault.left--
      if (fault.kind === "hang") return
      if (fault.kind === "cut") return void response.destroy()
      if (typeof fault.kind === "number") {
        const type = fault.kind < 500 ? "invalid_request_error" : "api_error"
        return void answer(fault.kind, JSON.stringify({ error: { type, message: "planned" } }), fault.headers)
      }
    }
    try {
      const known = this.keys.get(call.key)
      if (known === undefined) throw refuse(401, `Invalid API Key provided: ${call.key}`)
      if (request.headers["stripe-version"] !== version)
        throw refuse(400, `Another version of the API: ${request.headers["stripe-version"]}`)
      const scope = `${call.method} ${pathname} ${body}`
      const before =
        call.idempotencyKey === undefined ? undefined : known.account.kept.get(call.idempotencyKey)
      if (before !== undefined) {
        if (before.request !== scope)
          throw new Refusal(400, {
            type: "idempotency_error",
            message: "Keys for idempotent requests can only be used with the same parameters"
          })
        if (fault?.kind === "lost") return void response.destroy()
        return void answer(before.status, before.body, { "idempotent-replayed": "true" })
      }
      const made = JSON.stringify(this.handle(known.account, known.rights, call, searchParams))
      const kept: Kept =
        fault?.kind === "late"
          ? {
              request: scope,
              status: 500,
              body: JSON.stringify({ error: { type: "api_error", message: "late" } })
            }
          : { request: scope, status: 200, body: made }
      if (call.idempotencyKey !== undefined) known.account.kept.set(call.idempotencyKey, kept)
      if (fault?.kind === "lost") return void response.destroy()
      if (fault?.kind === "slow") await fault.until
      answer(kept.status, kept.body)
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      answer(error.status, JSON.stringify({ error: error.error }))
    }
  }

  private handle(
    account: Account,
    rights: Rights,
    { method, path, params }: Call,
    query: URLSearchParams
  ): Row {
    const kind = Object.keys(kinds).find((one) => path === `/v1/${one}` || path.startsWith(`/v1/${one}/`))
    const area = path === "/v1/balance" ? "balance" : kinds[kind ?? ""]?.area
    if (area === undefined) throw refuse(404, `Unrecognized request URL (${method}: ${path})`)
    const right = rights[area]
    if (right === undefined || (method !== "GET" && right !== "write"))
      throw refuse(403, "The provided key does not have the required permissions for this endpoint")
    if (area === "balance" || kind === undefined) return { object: "balance", available: [] }
    const rows = account.of(kind)
    const id = path.slice(`/v1/${kind}/`.length)
    if (id === "") return method === "GET" ? listed(kind, rows, query) : this.make(account, kind, params)
    const row = rows.find((one) => one["id"] === id)
    if (row === undefined)
      throw refuse(404, `No such ${kinds[kind]?.object}: '${id}'`, { code: "resource_missing", param: "id" })
    if (method === "GET") return row
    if (method === "DELETE" && kind === "subscriptions" && row["status"] === "canceled")
      throw refuse(404, `No such subscription: '${id}'`, { code: "resource_missing", param: "id" })
    if (method === "DELETE" && kind === "subscriptions") return Object.assign(row, { status: "canceled" })
    if (method === "DELETE") {
      rows.splice(rows.indexOf(row), 1)
      return { id, object: row["object"], deleted: true }
    }
    const { metadata = {}, disabled, ...fields } = params
    const merged = Object.entries({ ...row["metadata"], ...metadata }).filter(([, value]) => value !== "")
    const emptied = Object.fromEntries(
      Object.entries(fields).map(([name, value]) => [name, value === "" ? null : value])
    )
    const status = disabled === undefined ? {} : { status: disabled ? "disabled" : "enabled" }
    return Object.assign(row, emptied, status, { metadata: Object.fromEntries(merged) })
  }

  private make(account: Account, kind: string, params: Row): Row {
    const required = (name: string) => {
      if (params[name] === undefined || params[name] === "")
        throw refuse(400, `Missing required param: ${name}.`, { code: "parameter_missing", param: name })
    }
    const known = (of: string, id: unknown, param: string) => {
      if (!account.of(of).some((one) => one["id"] === id))
        throw refuse(400, `No such object: '${id}'`, { code: "resource_missing", param })
    }
    switch (kind) {
      case "products":
        required("name")
        return account.add(kind, { active: true, description: null, ...params })
      case "prices": {
        known("products", params["product"], "product")
        if (params["currency"] === "xxx")
          throw refuse(400, "Invalid currency: xxx. Stripe currently supports others.", { param: "currency" })
        return account.add(kind, { active: true, recurring: null, ...params })
      }
      case "customers":
        return account.add(kind, { email: null, name: null, ...params })
      case "checkout/sessions": {
        for (const [i, item] of (params["line_items"] ?? []).entries())
          known("prices", item.price, `line_items[${i}][price]`)
        const row = account.add(kind, {
          status: "open",
          payment_status: "unpaid",
          expires_at: Math.floor(Date.now() / 1_000) + 86_400,
          customer: null,
          ...params
        })
        return Object.assign(row, { url: `https://checkout.stripe.com/c/pay/${row["id"]}` })
      }
      case "billing_portal/sessions":
        known("customers", params["customer"], "customer")
        return account.add(kind, { url: "https://billing.stripe.com/p/session/1", ...params })
      case "webhook_endpoints": {
        required("url")
        const row = account.add(kind, { status: "enabled", ...params })
        return { ...row, secret: `whsec_${randomBytes(16).toString("hex")}` }
      }
      default:
        throw refuse(405, "Not here")
    }
  }
}

const listed = (kind: string, rows: ReadonlyArray<Row>, query: URLSearchParams): Row => {
  const limit = Number(query.get("limit") ?? 10)
  if (!(limit >= 1 && limit <= 100)) throw refuse(400, "Invalid limit", { param: "limit" })
  const since = Number(query.get("created[gte]") ?? 0)
  const shown = rows
    .toReversed()
    .filter((row) => row["created"] >= since)
    .filter(
      (row) => kind !== "subscriptions" || query.get("status") === "all" || row["status"] !== "canceled"
    )
  const after = query.get("starting_after")
  const from = after === null ? 0 : shown.findIndex((row) => row["id"] === after) + 1
  if (after !== null && from === 0)
    throw refuse(400, `No such object: '${after}'`, { code: "resource_missing", param: "starting_after" })
  return { object: "list", data: shown.slice(from, from + limit), has_more: shown.length > from + limit }
}

/** Until the scope closes, on a free port of this machine. */
export const stripeStandIn = Effect.acquireRelease(
  Effect.promise(async () => {
    const server = http.createServer()
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
    const { port } = server.address() as AddressInfo
    const standIn = new StandIn(`http://127.0.0.1:${port}`)
    server.on("request", standIn.serve)
    return { server, standIn }
  }),
  ({ server }) =>
    Effect.promise(
      () =>
        new Promise<void>((resolve) => {
          server.closeAllConnections()
          server.close(() => resolve())
        })
    )
).pipe(Effect.map(({ standIn }) => standIn))
