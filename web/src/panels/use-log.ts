/** What a container prints, followed as server-sent events, from the start. */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { useEffect, useState } from "react"
import { LogEntry } from "#src/container-logs/log-page.ts"
import { apiUrl } from "../api/place.ts"
import { makeParser } from "../live/sse.ts"

export type Entry = typeof LogEntry.Type

export interface Log {
  readonly entries: ReadonlyArray<Entry>
  /** Older entries than these were dropped. */
  readonly cut: boolean
  readonly state: "following" | "ended" | "broken" | "refused"
}

/** A page that follows for days keeps the newest of these. */
const mostEntries = 5_000
const nothing: Log = { entries: [], cut: false, state: "following" }
const longestWaitMs = 30_000
/** Another try does not help. */
const final = new Set([401, 403, 404])

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(LogEntry))

/** `path` is that of the operation, below the API's address, with a query where it takes one. */
export const useLog = (path: string): Log => {
  const [log, setLog] = useState(nothing)
  useEffect(() => {
    setLog(nothing)
    const ending = new AbortController()
    let last: string | undefined
    let timer: ReturnType<typeof setTimeout> | undefined
    let failures = 0

    const add = (entries: ReadonlyArray<Entry>) => {
      last = entries.at(-1)?.id ?? last
      setLog((before) => {
        const all = [...before.entries, ...entries]
        return {
          entries: all.slice(-mostEntries),
          cut: before.cut || all.length > mostEntries,
          state: "following"
        }
      })
    }
    /** How it ended; `broken`: it may go on. */
    const read = async (): Promise<"ended" | "broken" | "refused"> => {
      const response = await fetch(`${apiUrl}${path}${path.includes("?") ? "&" : "?"}follow=true`, {
        headers: last === undefined ? {} : { "last-event-id": last },
        signal: ending.signal,
        cache: "no-store"
      })
      if (final.has(response.status)) return "refused"
      if (!response.ok || response.body === null) return "broken"
      const parse = makeParser()
      const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader()
      for (;;) {
        const { done, value } = await pieces.read()
        if (done) return "broken"
        failures = 0
        const events = parse(value).filter((message) => message.type === "event")
        const entries = events.flatMap(({ data }) => Option.toArray(decode(data)))
        if (entries.length > 0) add(entries)
        // The last event tells of what printed it, and is no entry.
        if (entries.length < events.length) return "ended"
      }
    }
    const follow = async (): Promise<void> => {
      const state = await read().catch(() => "broken" as const)
      if (ending.signal.aborted) return
      setLog((before) => ({ ...before, state }))
      const wait = Math.min(longestWaitMs, 1_000 * 2 ** failures++) * (0.5 + Math.random() / 2)
      if (state === "broken") timer = setTimeout(() => void follow(), wait)
    }
    void follow()
    return () => {
      ending.abort()
      clearTimeout(timer)
    }
  }, [path])
  return log
}
