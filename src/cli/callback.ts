/**
 * Waits for the answer of an authorization request (RFC 6749, 4.1.2) at a port of this machine (RFC 8252, 7.3), and
 * where the browser is on another machine, for its address on standard input.
 *
 * Any page and any program of this machine may knock at the port. What does not carry the state of this request and the
 * server's name (RFC 9207) is turned away, and the wait goes on.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import { createInterface } from "node:readline"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import { failure } from "./failure.ts"
import { Invocation } from "./invocation.ts"
import { say } from "./output.ts"

interface Expected {
  readonly state: string
  readonly issuer: string
}

const patience = "10 minutes"

const listening = Effect.acquireRelease(
  Effect.callback<{ readonly server: Server; readonly port: number }, ReturnType<typeof failure>>(
    (resume) => {
      const server = createServer()
      const failed = (why: string) => resume(Effect.fail(failure(`Cannot listen on 127.0.0.1: ${why}`)))
      server.once("error", ({ message }) => failed(message))
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        if (address === null || typeof address === "string") failed("it has no port")
        else resume(Effect.succeed({ server, port: address.port }))
      })
    }
  ),
  ({ server }) =>
    Effect.callback<void>((resume) => {
      server.close(() => resume(Effect.void))
      server.closeAllConnections()
    })
)

const single = (parameters: URLSearchParams, name: string) => {
  const [value, second] = parameters.getAll(name)
  return second === undefined ? value : undefined
}

/** Whether it is the answer to this very request. */
const isAnswer = ({ searchParams }: URL, { issuer, state }: Expected): boolean =>
  single(searchParams, "state") === state &&
  single(searchParams, "iss") === issuer &&
  (single(searchParams, "code") !== undefined) !== (single(searchParams, "error") !== undefined)

const page = (response: ServerResponse, status: number, text: string) => {
  response.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    connection: "close"
  })
  response.end(`${text}\n`)
}

/** Where the answer has to be sent, and how it is waited for. */
export const callback = Effect.gen(function* () {
  const { port, server } = yield* listening
  const redirectUri = `http://127.0.0.1:${port}/callback`

  const atPort = (expected: Expected) =>
    Effect.callback<URL>((resume) => {
      const serve = (request: IncomingMessage, response: ServerResponse) => {
        const url = URL.parse(request.url ?? "", redirectUri)
        const isHere = url?.origin === new URL(redirectUri).origin && url.pathname === "/callback"
        // Another name for this machine in `Host` is a page that had its own name resolved to it.
        const isOurs = request.method === "GET" && request.headers.host === `127.0.0.1:${port}`
        if (url === null || !isHere || !isOurs || !isAnswer(url, expected))
          return page(response, 404, "Nothing here.")
        // The browser has its page before the port is closed.
        response.once("close", () => resume(Effect.succeed(url)))
        page(
          response,
          200,
          single(url.searchParams, "error") === undefined
            ? "The command line has the answer. You may close this window."
            : "Not signed in; the command line says why. You may close this window."
        )
      }
      server.on("request", serve)
      return Effect.sync(() => server.off("request", serve))
    })

  const pasted = Effect.fnUntraced(function* (expected: Expected) {
    const { stdin } = yield* Invocation
    const lines = yield* Effect.acquireRelease(
      Effect.sync(() => createInterface({ input: stdin })),
      (open) => Effect.sync(() => open.close())
    )
    const found = yield* Deferred.make<URL>()
    const run = Effect.runForkWith(yield* Effect.context<never>())
    lines.on("line", (line) => {
      if (line.trim() === "") return
      const url = URL.parse(line.trim())
      const fits = url !== null && `${url.origin}${url.pathname}` === redirectUri && isAnswer(url, expected)
      run(fits ? Deferred.succeed(found, url) : say("That is not the address that this sign-in ends at."))
    })
    return yield* Deferred.await(found)
  }, Effect.scoped)

  return {
    redirectUri,
    /** The address that the browser was sent to, with the code or the error in it. */
    answer: (expected: Expected, options: { readonly pasted: boolean }) =>
      (options.pasted ? Effect.raceFirst(atPort(expected), pasted(expected)) : atPort(expected)).pipe(
        Effect.timeoutOrElse({
          duration: patience,
          orElse: () => Effect.fail(failure(`Nobody answered within ${patience}`))
        })
      )
  }
})
