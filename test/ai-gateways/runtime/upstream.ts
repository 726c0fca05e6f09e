/**
 * Stand-ins for model servers of both dialects, in the test's process. A test says what the next requests get; each is
 * noted with what was asked and whether it was cut off by the caller.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import * as Effect from "effect/Effect"

export interface Seen {
  readonly path: string
  readonly headers: IncomingMessage["headers"]
  // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
  readonly body: any
  /** The caller went away before the answer had ended. */
  aborted: boolean
}

export type Behaviour = (seen: Seen, response: ServerResponse) => Promise<void> | void

export interface StandIn {
  readonly url: string
  readonly seen: Array<Seen>
  /** Made so far. */
  readonly connections: () => number
  /** One for each of the next requests; the last one for all that follow. */
  readonly behave: (...behaviours: ReadonlyArray<Behaviour>) => void
}

/** While the scope is open. */
export const standIn = Effect.map(
  Effect.acquireRelease(
    Effect.promise(async () => {
      const seen: Array<Seen> = []
      let next: ReadonlyArray<Behaviour> = []
      const server = createServer((request, response) => {
        const answer = async () => {
          let text = ""
          for await (const piece of request) text += String(piece)
          const one: Seen = {
            path: request.url ?? "",
            headers: request.headers,
            body: JSON.parse(text),
            aborted: false
          }
          seen.push(one)
          response.on("close", () => {
            if (!response.writableFinished) one.aborted = true
          })
          const [first, ...others] = next
          if (others.length > 0) next = others
          await first?.(one, response)
        }
        answer().catch(() => response.destroy())
      })
      let connections = 0
      server.on("connection", () => connections++)
      await new Promise<void>((done) => server.listen(0, "127.0.0.1", done))
      const { port } = server.address() as AddressInfo
      const stand: StandIn = {
        url: `http://127.0.0.1:${port}/v1`,
        seen,
        connections: () => connections,
        behave: (...behaviours) => {
          next = behaviours
        }
      }
      return { server, stand }
    }),
    ({ server }) =>
      Effect.promise(async () => {
        server.closeAllConnections()
        await new Promise((done) => server.close(done))
      })
  ),
  ({ stand }) => stand
)

export const streaming = (response: ServerResponse) =>
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" })

/** Writes what the other side is ready to take, and says whether it is there still. */
export const write = async (response: ServerResponse, text: string): Promise<boolean> => {
  if (response.destroyed) return false
  if (response.write(text)) return true
  await new Promise<void>((done) => {
    const ready = () => {
      response.off("drain", ready).off("close", ready)
      done()
    }
    response.on("drain", ready).on("close", ready)
  })
  return !response.destroyed
}

const event = (data: unknown) => `data: ${JSON.stringify(data)}\n\n`

let chunks = 0
/** Every chunk has an id of its own here, and names the provider's model: what passes it on must not. */
export const chunk = (delta: object, finish: string | null = null) =>
  event({
    id: `chatcmpl-provider-${++chunks}`,
    object: "chat.completion.chunk",
    created: 1,
    model: "provider-secret-model",
    system_fingerprint: "fp_provider",
    choices: [{ index: 0, delta, finish_reason: finish }]
  })

export const usageOf = (prompt_tokens: unknown, completion_tokens: unknown, cached_tokens = 0) =>
  event({
    id: "chatcmpl-provider",
    model: "provider-secret-model",
    choices: [],
    usage: { prompt_tokens, completion_tokens, prompt_tokens_details: { cached_tokens } }
  })

export const done = "data: [DONE]\n\n"

/** A whole answer in OpenAI's dialect. */
export const says =
  (words: ReadonlyArray<string>, usage: string = usageOf(11, words.length)): Behaviour =>
  (_, response) => {
    streaming(response).end(
      [
        chunk({ role: "assistant", content: "" }),
        ...words.map((content) => chunk({ content })),
        chunk({}, "stop"),
        usage,
        done
      ].join("")
    )
  }

export const callsTool: Behaviour = (_, response) => {
  streaming(response).end(
    [
      chunk({ role: "assistant", content: null }),
      chunk({
        tool_calls: [
          { index: 0, id: "call_1", type: "function", function: { name: "weather", arguments: "" } }
        ]
      }),
      ...['{"ci', 'ty":"', 'Oslo"}'].map((part) =>
        chunk({ tool_calls: [{ index: 0, function: { arguments: part } }] })
      ),
      chunk({}, "tool_calls"),
      usageOf(20, 9),
      done
    ].join("")
  )
}

/** Begins to answer, and goes on until the caller has gone. */
export const endless =
  (word = "word "): Behaviour =>
  async (_, response) => {
    streaming(response)
    await write(response, chunk({ role: "assistant", content: "" }))
    while (await write(response, chunk({ content: word }))) await new Promise((done) => setTimeout(done, 5))
  }

/** Begins to answer, and then says nothing more. */
export const stalls =
  (words: ReadonlyArray<string> = ["once "]): Behaviour =>
  async (_, response) => {
    streaming(response)
    await write(response, words.map((content) => chunk({ content })).join(""))
  }

export const neverAnswers: Behaviour = () => {}

export const refuses =
  (
    status: number,
    message = "the provider's own words",
    headers: Record<string, string> = {},
    code?: string
  ): Behaviour =>
  (_, response) => {
    response
      .writeHead(status, { "content-type": "application/json", ...headers })
      .end(JSON.stringify({ error: { message, type: "provider_error", code: code ?? null } }))
  }

export const sends =
  (status: number, headers: Record<string, string>, text: string): Behaviour =>
  (_, response) => {
    response.writeHead(status, headers).end(text)
  }

const named = (type: string, more: object) => `event: ${type}\n${event({ type, ...more })}`

/** A whole answer in Anthropic's dialect; of tools if there are any, otherwise of words. */
export const anthropicSays =
  (
    words: ReadonlyArray<string>,
    tool?: { readonly name: string; readonly parts: ReadonlyArray<string> }
  ): Behaviour =>
  (_, response) => {
    const delta = (index: number, delta: object) => named("content_block_delta", { index, delta })
    streaming(response).end(
      [
        named("message_start", {
          message: {
            id: "msg_provider",
            model: "provider-secret-model",
            usage: {
              input_tokens: 8,
              cache_read_input_tokens: 2,
              cache_creation_input_tokens: 1,
              output_tokens: 1
            }
          }
        }),
        named("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
        named("ping", {}),
        ...words.map((text) => delta(0, { type: "text_delta", text })),
        named("content_block_stop", { index: 0 }),
        ...(tool === undefined
          ? []
          : [
              named("content_block_start", {
                index: 1,
                content_block: { type: "tool_use", id: "call_1", name: tool.name, input: {} }
              }),
              ...tool.parts.map((partial_json) => delta(1, { type: "input_json_delta", partial_json })),
              named("content_block_stop", { index: 1 })
            ]),
        named("message_delta", {
          delta: { stop_reason: tool === undefined ? "end_turn" : "tool_use" },
          usage: { output_tokens: words.length }
        }),
        named("message_stop", {})
      ].join("")
    )
  }
