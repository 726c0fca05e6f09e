/**
 * One request to an upstream and its answer, in pieces as they come. No redirect is followed. Pieces that nobody has
 * taken are bounded: beyond that the connection is not read.
 */
import * as Effect from "effect/Effect"
import type { Dispatcher } from "undici"
import { CallFailed } from "./failure.ts"

/** For the end of an answer after its last event. */
const leaveMs = 1_000
/** Bytes that wait to be taken. */
const mostWaiting = 64 * 1024

export interface Head {
  readonly status: number
  readonly contentType: string
  readonly retryAfter: string | undefined
}

/** The connection was not made, or broke. */
export class Broken {
  readonly _tag = "Broken"
}

export interface Exchange {
  readonly head: Effect.Effect<Head, Broken | CallFailed>
  /** What came since it was taken last, as soon as there is something; undefined: the answer has ended. */
  readonly take: Effect.Effect<Uint8Array | undefined, Broken | CallFailed>
  /** When something came last, or was waited for first; undefined: it is not the upstream that is waited for. */
  readonly waitingSince: () => number | undefined
  /** Ends it at once; whoever waits, or takes later, gets `why`. */
  readonly stop: (why: CallFailed) => void
  /** Ends it at once. */
  readonly abort: () => void
  /** Everything that counts has come: what is left is dropped, so that the connection can be used again. */
  readonly leave: () => void
}

export interface ExchangeRequest {
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

const broken = new Broken()
const aborted = new Error("The call has ended")

/** `sent` is called when the request goes out; `closed` once, when the connection is free or gone. */
export const startExchange = (
  dispatcher: Pick<Dispatcher, "dispatch">,
  request: ExchangeRequest,
  now: () => number,
  sent: () => void,
  closed: () => void
): Exchange => {
  let controller: Dispatcher.DispatchController | undefined
  let head: Head | undefined
  let pieces: Array<Uint8Array> = []
  let bytes = 0
  let over = false
  let failure: Broken | CallFailed | undefined
  let waiter: (() => void) | undefined
  let leaving: NodeJS.Timeout | undefined
  let since = now()

  const wake = () => {
    const woken = waiter
    waiter = undefined
    woken?.()
  }
  const close = (why?: Broken | CallFailed) => {
    if (over) return
    over = true
    failure = why
    clearTimeout(leaving)
    closed()
    wake()
  }
  const end = (why: Broken | CallFailed) => {
    if (over) return
    close(why)
    // Before there is a connection, the request is dropped as soon as it would be sent.
    controller?.abort(aborted)
  }

  dispatcher.dispatch(
    {
      method: "POST",
      path: request.path,
      headers: {
        "content-type": "application/json",
        accept: "text/event-stream",
        "user-agent": "svc",
        ...request.headers
      },
      body: request.body,
      // The caller bounds the time.
      headersTimeout: 0,
      bodyTimeout: 0
    },
    {
      onRequestStart: (started) => {
        controller = started
        if (over) started.abort(aborted)
        else sent()
      },
      onResponseStart: (_, status, headers) => {
        head = {
          status,
          contentType: one(headers["content-type"]) ?? "",
          retryAfter: one(headers["retry-after"])
        }
        since = now()
        wake()
      },
      onResponseData: (its, piece) => {
        if (over || leaving !== undefined) return
        pieces.push(piece)
        bytes += piece.length
        since = now()
        if (bytes > mostWaiting) its.pause()
        wake()
      },
      onResponseEnd: () => close(),
      onResponseError: () => close(broken)
    }
  )

  const wait = <A>(ready: () => Effect.Effect<A, Broken | CallFailed> | undefined) =>
    Effect.suspend(() => {
      const now = ready()
      if (now !== undefined) return now
      return Effect.callback<A, Broken | CallFailed>((resume) => {
        waiter = () => {
          const then = ready()
          if (then !== undefined) resume(then)
        }
        return Effect.sync(() => {
          waiter = undefined
        })
      })
    })

  return {
    head: wait(() => {
      if (failure instanceof CallFailed) return Effect.fail(failure)
      if (head !== undefined) return Effect.succeed(head)
      return failure === undefined ? undefined : Effect.fail(failure)
    }),
    take: wait(() => {
      if (failure instanceof CallFailed) return Effect.fail(failure)
      // What came before the connection broke counts.
      if (bytes > 0) {
        const [first] = pieces
        const taken = pieces.length === 1 && first !== undefined ? first : Buffer.concat(pieces)
        pieces = []
        bytes = 0
        since = now()
        if (controller?.paused === true) controller.resume()
        return Effect.succeed(taken)
      }
      if (failure !== undefined) return Effect.fail(failure)
      return over ? Effect.succeed(undefined) : undefined
    }),
    waitingSince: () => (waiter === undefined ? undefined : since),
    stop: (why) => {
      // Also after the answer has come: what is left of it is not passed on.
      if (over) failure ??= why
      else end(why)
    },
    abort: () => end(broken),
    leave: () => {
      if (over) return
      leaving = setTimeout(() => end(broken), leaveMs)
      pieces = []
      bytes = 0
      if (controller?.paused === true) controller.resume()
    }
  }
}

const one = (value: string | ReadonlyArray<string> | undefined): string | undefined =>
  typeof value === "string" ? value : value?.[0]
