/**
 * Follows an organization's resources: one request whose answer does not end, repeated with backoff when it breaks, from
 * the last change that was seen.
 */
import type { Connection, Tell } from "./protocol.ts"
import { makeParser } from "./sse.ts"

/** The server says something at least every 15 seconds; a connection that is silent for longer is dead. */
const longestSilenceMs = 40_000
const longestWaitMs = 30_000
/** Changes are handed on together: a burst is one message for each of these. */
const batchMs = 40
/** What the server says after everything that there was. */
export const everything = "that is everything"

/** Not worth another try. */
const final = new Set([401, 403, 404])

export interface Following {
  readonly retry: () => void
  readonly stop: () => void
}

export const follow = (url: string, tell: (message: Tell) => void): Following => {
  let last: string | undefined
  let batch: Array<unknown> = []
  let flushing: ReturnType<typeof setTimeout> | undefined
  let failures = 0
  let stopped = false
  let liveAt = Date.now()
  let ending = new AbortController()
  let wake: (() => void) | undefined

  const connection = (now: Connection) => tell({ type: "connection", connection: now })
  const flush = () => {
    clearTimeout(flushing)
    flushing = undefined
    if (batch.length === 0) return
    tell({ type: "changes", changes: batch })
    batch = []
  }
  const waitFor = (ms: number) =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms)
      wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })

  /** Answers the status that it ended with; 0: it broke off. */
  const read = async (): Promise<{ readonly status: number; readonly retryAfterMs: number }> => {
    ending = new AbortController()
    let silence = setTimeout(() => ending.abort(), longestSilenceMs)
    const heard = () => {
      clearTimeout(silence)
      silence = setTimeout(() => ending.abort(), longestSilenceMs)
    }
    try {
      const response = await fetch(url, {
        headers: { accept: "text/event-stream", ...(last === undefined ? {} : { "last-event-id": last }) },
        signal: ending.signal,
        cache: "no-store"
      })
      const retryAfterMs = Number(response.headers.get("retry-after") ?? 0) * 1000 || 0
      if (!response.ok || response.body === null) return { status: response.status, retryAfterMs }
      if (last === undefined) tell({ type: "reset" })
      connection({ state: "live" })
      const parse = makeParser()
      const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader()
      for (;;) {
        const { done, value } = await pieces.read()
        if (done) return { status: 0, retryAfterMs: 0 }
        heard()
        failures = 0
        liveAt = Date.now()
        for (const message of parse(value)) {
          if (message.type === "event") {
            last = message.id ?? last
            batch.push(JSON.parse(message.data))
          } else if (message.text === everything) {
            flush()
            tell({ type: "complete" })
          }
        }
        flushing ??= setTimeout(flush, batchMs)
      }
    } catch {
      return { status: 0, retryAfterMs: 0 }
    } finally {
      clearTimeout(silence)
      ending.abort()
      flush()
    }
  }

  const run = async () => {
    connection({ state: "connecting" })
    while (!stopped) {
      const { status, retryAfterMs } = await read()
      if (stopped) return
      if (final.has(status)) {
        last = undefined
        tell({ type: "reset" })
        connection({ state: "refused", status })
        await new Promise<void>((resolve) => {
          wake = resolve
        })
        continue
      }
      // What it should go on from is not known there: everything once more.
      if (status === 422) last = undefined
      const backoff = Math.min(longestWaitMs, 500 * 2 ** failures++)
      const wait = Math.max(retryAfterMs, backoff * (0.5 + Math.random() / 2))
      connection({ state: "stale", since: liveAt, retryAt: Date.now() + wait, status })
      await waitFor(wait)
    }
  }
  void run()

  return {
    retry: () => wake?.(),
    stop: () => {
      stopped = true
      ending.abort()
      clearTimeout(flushing)
      wake?.()
    }
  }
}
