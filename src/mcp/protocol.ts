/**
 * The MCP server of one request: which tools, resources and prompts there are for its caller, in the words of the
 * protocol (modelcontextprotocol.io, revisions 2024-11-05 to 2026-07-28).
 */
import {
  type CallToolResult,
  type McpRequestContext,
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  Server,
  type Tool
} from "@modelcontextprotocol/server"
import type * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { isObject, type JsonObject, plainSchemas } from "#src/api/definition/json-schema.ts"
import type { Answer, Dispatch } from "#src/api/dispatch.ts"
import { type Answered, isRefusal, refused } from "./answer.ts"
import { type Caller, refusal } from "./caller.ts"
import { confirmation } from "./confirm.ts"
import { execute, Order } from "./execute.ts"
import { prompts } from "./prompts.ts"
import { fixedResources, listed, listPath, readingOf, resourceTemplates } from "./resources.ts"
import { type Index, Search, search } from "./search.ts"

export interface Exchange {
  readonly index: Index
  readonly caller: Caller | undefined
  /** As the caller. */
  readonly dispatch: Dispatch
  /** Within the request; it ends with it, and with the signal. */
  readonly run: <A>(effect: Effect.Effect<A>, options: { readonly signal: AbortSignal }) => Promise<A>
}

const identity = { name: "svc", title: "svc control plane", version: "1" }

const instructionsFor = (caller: Caller | undefined): string =>
  [
    "A control plane for databases, caches, queues, cron jobs and containers.",
    "Find operations with search, then run them with execute.",
    "What is changed is carried out after the answer: look again until it is ready.",
    caller === undefined
      ? "Nobody is signed in: search works, execute has the client sign in."
      : `You act in the organization ${caller.organization.slug} as ${caller.organization.role}.`
  ].join(" ")

export const serverOf = (exchange: Exchange, era: McpRequestContext["era"]): Server => {
  const { index, caller, dispatch, run } = exchange
  const server = new Server(identity, {
    instructions: instructionsFor(caller),
    capabilities: {
      tools: {},
      prompts: {},
      // Earlier revisions follow resources by a session, and there is none.
      resources: era === "modern" ? { subscribe: true } : {}
    }
  })
  const call = execute(index.catalogue, dispatch)
  const get = ({ organization }: Caller, path: string, accept: string) =>
    dispatch({ method: "GET", url: `/v1/orgs/${organization.id}${path}`, headers: { accept } })

  server.setRequestHandler("tools/list", () => ({ tools: toolsOf(index, caller) }))

  server.setRequestHandler("tools/call", ({ params }, context) => {
    switch (params.name) {
      case "search": {
        const input = decoded(Search, params.arguments)
        return "refused" in input ? toolAnswer(input.refused) : said(search(index, caller, input.value))
      }
      case "execute": {
        const input = decoded(Order, params.arguments)
        if ("refused" in input) return toolAnswer(input.refused)
        if (caller === undefined) return toolAnswer(refused(401, "unauthenticated", signIn))
        const order = input.value
        const entry = index.catalogue.get(order.operation)
        const pending =
          entry !== undefined && refusal(entry.operation, caller) === undefined
            ? confirmation(entry, order, caller, context)
            : undefined
        if (pending !== undefined) return "ask" in pending ? pending.ask : toolAnswer(pending.refused)
        return run(call(order, caller), context.mcpReq).then(toolAnswer)
      }
      default:
        throw new ProtocolError(ProtocolErrorCode.InvalidParams, "The tools are search and execute")
    }
  })

  server.setRequestHandler("resources/list", async ({ params }, context) => {
    const listing = index.catalogue.get("resources.list")
    if (caller === undefined || listing === undefined || refusal(listing.operation, caller) !== undefined)
      return { resources: fixedResources }
    const cursor = params?.cursor
    const answer = await run(get(caller, listPath(cursor), "application/json"), context.mcpReq)
    const page = bodyOf(answer)
    if (answer.status !== 200) throw failed(page)
    const { items, nextCursor } = page
    return {
      resources: [
        ...(cursor === undefined ? fixedResources : []),
        ...(Array.isArray(items) ? items.flatMap(listed) : [])
      ],
      ...(typeof nextCursor === "string" ? { nextCursor } : {})
    }
  })

  server.setRequestHandler("resources/templates/list", () => ({ resourceTemplates }))

  server.setRequestHandler("resources/read", async ({ params: { uri } }, context) => {
    const reading = readingOf(uri)
    if (reading === undefined) throw new ResourceNotFoundError(uri)
    if (caller === undefined) throw failed({ detail: signIn })
    const answer = await run(get(caller, reading.path, reading.type), context.mcpReq)
    if (answer.status === 404) throw new ResourceNotFoundError(uri)
    if (answer.status !== 200) throw failed(bodyOf(answer))
    return { contents: [{ uri, mimeType: reading.type, text: answer.text ?? "" }] }
  })

  server.setRequestHandler("prompts/list", () => ({
    prompts: Object.entries(prompts).map(([name, { title, description, argument }]) => ({
      name,
      title,
      description,
      arguments: [{ ...argument, required: false }]
    }))
  }))

  server.setRequestHandler("prompts/get", ({ params }) => {
    const prompt = Object.hasOwn(prompts, params.name) ? prompts[params.name] : undefined
    if (prompt === undefined)
      throw new ProtocolError(
        ProtocolErrorCode.InvalidParams,
        `The prompts are ${Object.keys(prompts).join(" and ")}`
      )
    const text = prompt.text(params.arguments?.[prompt.argument.name])
    return { description: prompt.description, messages: [{ role: "user", content: { type: "text", text } }] }
  })

  return server
}

const signIn = "Sign in, or send an API key; search needs neither"

/** The answer as one piece of text: models read that, and a secret in it is there once. */
const said = (content: JsonObject): CallToolResult => ({
  content: [{ type: "text", text: JSON.stringify(content) }]
})

const toolAnswer = (answer: Answered): CallToolResult =>
  isRefusal(answer) ? { ...said(answer.content), isError: true } : said(answer.content)

const bodyOf = ({ text = "" }: Answer): JsonObject => {
  const body: unknown = text === "" ? {} : JSON.parse(text)
  return isObject(body) ? body : {}
}

/** A problem of the API, for methods that have no refusals of their own. */
const failed = ({ code, detail }: JsonObject): ProtocolError =>
  new ProtocolError(ProtocolErrorCode.InvalidParams, String(detail), { code })

/** What a model sends, or what is wrong with it, every fault at once. */
const decoded = <A>(
  schema: Schema.ConstraintDecoder<A>,
  input: unknown
): { readonly value: A } | { readonly refused: Answered } =>
  Result.match(
    Schema.decodeUnknownResult(schema)(input ?? {}, { errors: "all", onExcessProperty: "error" }),
    {
      onSuccess: (value) => ({ value }),
      onFailure: (error) => ({ refused: refused(422, "invalid", String(error.message)) })
    }
  )

const schemaOf = (schema: Schema.Constraint): Tool["inputSchema"] => {
  const { schema: made } = Schema.toJsonSchemaDocument(schema)
  return { ...plainSchemas(made), type: "object" }
}
const searchSchema = schemaOf(Search)
const orderSchema = schemaOf(Order)

const risks = ["read", "write", "destructive", "dangerous"] as const

const toolsOf = ({ catalogue }: Index, caller: Caller | undefined): Array<Tool> => {
  // As grave as the gravest that this caller may run; for strangers, who may sign in yet, the gravest there is.
  const allowed = [...catalogue.values()].filter(
    ({ operation }) => caller === undefined || refusal(operation, caller) === undefined
  )
  const gravest = Math.max(0, ...allowed.map(({ operation }) => risks.indexOf(operation.risk)))
  return [
    {
      name: "search",
      title: "Search operations",
      description:
        "Finds operations of the control plane by words, with their parameters, body, risk, and whether you may run them. Needs no credential.",
      inputSchema: searchSchema,
      annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false }
    },
    {
      name: "execute",
      title: "Run an operation",
      description:
        "Runs one operation by its id, as search tells it. Destructive and dangerous ones want the person asked first.",
      inputSchema: orderSchema,
      annotations: {
        readOnlyHint: gravest === 0,
        destructiveHint: gravest >= 2,
        idempotentHint: gravest === 0,
        openWorldHint: false
      }
    }
  ]
}
