/**
 * Connections of HTTP that requests to addresses of users go over. Each is to one address, which was judged before, and is
 * kept for a moment after its answer, for the next request to the same host at the same address.
 */
import type * as tls from "node:tls"
import * as Effect from "effect/Effect"
import type { buildConnector, Client, Dispatcher } from "undici"

/** Where a connection goes. */
export interface Target {
  readonly url: URL
  readonly address: string
  /** Undefined: it is not encrypted. */
  readonly secureContext: tls.SecureContext | undefined
}

export interface Sent {
  readonly method: Dispatcher.HttpMethod
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | undefined
  /** What comes after so many bytes is not read. */
  readonly maxAnswerBytes: number
}

export interface Got {
  readonly status: number
  /** By their names in lower case; of one that came more than once, the first. */
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly body: string
}

export interface Broken {
  readonly message: string
  /** Somebody may have received the request. */
  readonly sent: boolean
  /** The other end closed a connection that was kept, without a word about the request. */
  readonly closed: boolean
}

export interface Connections {
  /** Without a limit of its time. Whoever interrupts it ends the connection. */
  readonly exchange: (target: Target, sent: Sent) => Effect.Effect<Got, Broken>
}

/** Shorter than what servers keep an idle connection for, so that theirs is seldom closed under a request. */
const idleMs = 4_000
/** Of one host: as many as jobs and batches call it at once, which would connect anew each time. */
const mostIdle = 1_024
/** As an abrupt end is told of by the system, and by the client. */
const closings: ReadonlySet<unknown> = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"])

interface Connection {
  readonly client: Client
  /** Answers that came since it was connected. */
  answers: number
  readonly keep: () => void
  readonly end: () => void
}

export const makeConnections = Effect.gen(function* () {
  // Much to load, and nothing where no user has named an address.
  const library = yield* Effect.cached(Effect.promise(() => import("undici")))
  const idle = new Map<string, Array<Connection>>()
  const open = new Set<Connection>()
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      for (const connection of open) connection.end()
    })
  )

  /** Sessions of TLS are kept in it. */
  const connectors = new Map<tls.SecureContext | undefined, buildConnector.connector>()
  const connectorOf = (build: typeof buildConnector, secureContext: tls.SecureContext | undefined) => {
    const made =
      connectors.get(secureContext) ??
      // The caller bounds the time.
      build({ allowH2: false, timeout: 0, ...(secureContext === undefined ? {} : { secureContext }) })
    connectors.set(secureContext, made)
    return made
  }

  const connectionOf = (
    { Client, buildConnector }: typeof import("undici"),
    { url, address, secureContext }: Target
  ): Connection => {
    const host = address.includes(":") ? `[${address}]` : address
    const origin = `${url.protocol}//${host}${url.port === "" ? "" : `:${url.port}`}`
    const key = `${origin} ${url.host}`
    const kept = idle.get(key)?.pop()
    if (kept !== undefined) return kept
    const client = new Client(origin, {
      connect: connectorOf(buildConnector, secureContext),
      pipelining: 1,
      allowH2: false,
      keepAliveTimeout: idleMs,
      keepAliveMaxTimeout: idleMs,
      headersTimeout: 0,
      bodyTimeout: 0
    })
    const forget = () => {
      const others = idle.get(key) ?? []
      const at = others.indexOf(connection)
      if (at !== -1) others.splice(at, 1)
      if (others.length === 0) idle.delete(key)
      return at !== -1
    }
    const connection: Connection = {
      client,
      answers: 0,
      keep: () => {
        const others = idle.get(key) ?? []
        if (others.length >= mostIdle) return connection.end()
        others.push(connection)
        idle.set(key, others)
      },
      end: () => {
        open.delete(connection)
        forget()
        client.destroy(null, () => {})
      }
    }
    client.on("disconnect", () => {
      connection.answers = 0
      // Who uses it is told by its request.
      if (forget()) connection.end()
    })
    open.add(connection)
    return connection
  }

  const exchange = (connection: Connection, { url }: Target, { maxAnswerBytes, ...sent }: Sent) =>
    Effect.callback<Got, Broken>((resume) => {
      let begun = false
      let reused = false
      let status = 0
      let headers: Got["headers"] = {}
      const chunks: Array<Buffer> = []
      let size = 0
      let over = false
      const end = (exit: Effect.Effect<Got, Broken>, last: () => void) => {
        if (over) return
        over = true
        last()
        resume(exit)
      }
      const answer = () =>
        Effect.succeed({
          status,
          headers,
          body: Buffer.concat(chunks).subarray(0, maxAnswerBytes).toString("utf8")
        })
      connection.client.dispatch(
        {
          method: sent.method,
          path: `${url.pathname}${url.search}`,
          headers: { ...sent.headers, host: url.host },
          body: sent.body ?? null
        },
        {
          onRequestStart: () => {
            begun = true
            reused = connection.answers > 0
          },
          onResponseStart: (_, code, fields) => {
            // What comes before the answer (RFC 9110, 15.2).
            if (code < 200) return
            status = code
            headers = firsts(fields)
          },
          onResponseData: (_, chunk) => {
            chunks.push(chunk)
            size += chunk.length
            if (size >= maxAnswerBytes) end(answer(), connection.end)
          },
          onResponseEnd: () => {
            connection.answers++
            end(answer(), connection.keep)
          },
          onResponseError: (_, error) => {
            const closed = "code" in error && closings.has(error.code)
            end(
              Effect.fail({ message: error.message, sent: begun, closed: closed && reused && status === 0 }),
              connection.end
            )
          }
        }
      )
      return Effect.sync(() => {
        over = true
        connection.end()
      })
    })

  return {
    exchange: (target, sent) =>
      Effect.flatMap(library, (undici) =>
        Effect.suspend(() => exchange(connectionOf(undici, target), target, sent))
      )
  } satisfies Connections
})

const firsts = (fields: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>) =>
  Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, typeof value === "string" ? value : value?.[0]])
  )
