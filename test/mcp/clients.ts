/** Clients of both lines of the official SDK, as agents have them, and what their tools answer. */

import { randomBytes } from "node:crypto"
import * as v2 from "@modelcontextprotocol/client"
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js"
import { StreamableHTTPClientTransport as TransportV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import * as Effect from "effect/Effect"
import { digestOf } from "#src/access/Access.ts"
import { Plane, type Tenant } from "#test/setup/control-plane.ts"

export interface ToolAnswer {
  readonly isError: boolean
  // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
  readonly content: any
}

/** What both lines have in common, as far as it is used here. */
export interface McpClient {
  readonly version: string | undefined
  readonly client: v2.Client
  readonly call: (name: string, args: Record<string, unknown>) => Effect.Effect<ToolAnswer>
  /** The same without looking at the answer: why it failed, or undefined. */
  readonly failure: (name: string, args: Record<string, unknown>) => Effect.Effect<string | undefined>
  /** Takes what the person was sent back with. */
  readonly finishAuth: (callback: URL) => Effect.Effect<void>
}

export const lines = ["v1", "v2"] as const
export type Line = (typeof lines)[number]

export interface ConnectOptions {
  readonly token?: string
  /** Answers questions of forms; a client without it cannot ask. */
  readonly ask?: (message: string) => { action: "accept" | "decline"; content?: { confirm: boolean } }
  readonly fetch?: typeof fetch
  /** Signs in when it is asked to. */
  readonly auth?: v2.OAuthClientProvider
}

const identity = { name: "test", version: "1" }

/** Connected until the scope closes. */
export const connect = (line: Line, url: string, { token, ask, fetch: send, auth }: ConnectOptions = {}) =>
  Effect.acquireRelease(
    Effect.promise(async (): Promise<McpClient> => {
      const at = new URL(`${url}/mcp`)
      const options = {
        ...(token === undefined ? {} : { requestInit: { headers: { authorization: `Bearer ${token}` } } }),
        ...(send === undefined ? {} : { fetch: send }),
        ...(auth === undefined ? {} : { authProvider: auth })
      }
      const { client, finish } =
        line === "v1" ? await connectV1(at, options) : await connectV2(at, options, ask)
      return {
        client,
        version: client.getNegotiatedProtocolVersion?.(),
        call: (name, args) =>
          Effect.promise(async () => {
            const { isError, content } = await client.callTool({ name, arguments: args })
            const [first] = content
            if (first?.type !== "text") throw new Error("not text")
            return { isError: isError === true, content: JSON.parse(first.text) }
          }),
        failure: (name, args) =>
          Effect.promise(() =>
            client.callTool({ name, arguments: args }).then(
              () => undefined,
              (error: unknown) => String(error)
            )
          ),
        finishAuth: (callback) => Effect.promise(() => finish(callback))
      }
    }),
    ({ client }) => Effect.promise(() => client.close())
  )

type Options = NonNullable<ConstructorParameters<typeof v2.StreamableHTTPClientTransport>[1]>

interface Connected {
  readonly client: v2.Client
  readonly finish: (callback: URL) => Promise<void>
}

/** What is used of the older line has the same types in both. */
const connectV1 = async (at: URL, options: Options): Promise<Connected> => {
  const client = new ClientV1(identity)
  const transport = new TransportV1(at, options as never)
  await client.connect(transport as never)
  return {
    client: client as unknown as v2.Client,
    finish: ({ searchParams }) => transport.finishAuth(searchParams.get("code") ?? "")
  }
}

const connectV2 = async (at: URL, options: Options, ask: ConnectOptions["ask"]): Promise<Connected> => {
  const client = new v2.Client(identity, {
    versionNegotiation: { mode: "auto" },
    capabilities: ask === undefined ? {} : { elicitation: { form: {} } }
  })
  if (ask !== undefined) client.setRequestHandler("elicitation/create", ({ params }) => ask(params.message))
  const transport = new v2.StreamableHTTPClientTransport(at, options)
  await client.connect(transport)
  return { client, finish: ({ searchParams }) => transport.finishAuth(searchParams) }
}

export const initialize = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: identity }
}

/** A tool called by hand, in a revision that needs no more than this. */
export const toolCall = (name: string, args: unknown, id = 1) => ({
  jsonrpc: "2.0",
  id,
  method: "tools/call",
  params: { name, arguments: args }
})

/** A message as no client of an SDK would send it. */
export const post = (url: string, body: unknown, headers: Record<string, string> = {}) =>
  Effect.promise(async () => {
    const response = await fetch(`${url}/mcp`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        ...headers
      },
      body: typeof body === "string" ? body : JSON.stringify(body)
    })
    const text = await response.text()
    const data = /^data: (.*)$/m.exec(text)?.[1] ?? text
    // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
    const answer: any = data === "" ? undefined : JSON.parse(data)
    return { status: response.status, headers: response.headers, text, answer }
  })

/** The credential of an agent that was let in, as the way of signing in leaves it in the store. */
export const makeGrant = (
  tenant: Tenant,
  {
    scopes,
    role = "admin",
    audience = "mcp"
  }: {
    readonly scopes: ReadonlyArray<string>
    readonly role?: "admin" | "member"
    readonly audience?: "api" | "mcp"
  }
) =>
  Effect.gen(function* () {
    const { sql } = yield* Plane
    const token = `svca_${randomBytes(32).toString("hex")}`
    const [row] = yield* sql(`
      with g as (
        insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes)
        select '${tenant.id}', gen_random_uuid(), user_id, 'client', 'Test agent', '${audience}', '${role}',
          '{${scopes.join(",")}}'
        from member where org_id = '${tenant.id}' and role = '${role}' returning org_id, id
      ), t as (
        insert into agent_access_token (org_id, grant_id, digest, expires_at)
        select org_id, id, '\\x${digestOf(token).toString("hex")}', now() + interval '1 hour' from g
      )
      select id from g`)
    return { token, id: String(row?.["id"]) }
  })
