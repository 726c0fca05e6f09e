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
  readonly state: "following" | "ended" | "broken"
}

/** A page that follows for days keeps the newest of these. */
const mostEntries = 5_000
const nothing: Log = { entries: [], cut: false, state: "following" }
const retryMs = 3_000

const decode = Schema.decodeUnknownOption(Schema.fromJsonString(LogEntry))

/** `path` is that of the operation, below the API's address. */
export const useLog = (path: string): Log => {
  const [log, setLog] = useState(nothing)
  useEffect(() => {
    setLog(nothing)
    const ending = new AbortController()
    let last: string | undefined
    let timer: ReturnType<typeof setTimeout> | undefined

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
    /** Answers whether it came to its end. */
    const read = async (): Promise<boolean> => {
      const response = await fetch(`${apiUrl}${path}?follow=true`, {
        headers: last === undefined ? {} : { "last-event-id": last },
        signal: ending.signal,
        cache: "no-store"
      })
      if (!response.ok || response.body === null) throw new Error(String(response.status))
      const parse = makeParser()
      const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader()
      for (;;) {
        const { done, value } = await pieces.read()
        if (done) return false
        const events = parse(value).filter((message) => message.type === "event")
        const entries = events.flatMap(({ data }) => Option.toArray(decode(data)))
        if (entries.length > 0) add(entries)
        // The last event tells of what printed it, and is no entry.
        if (entries.length < events.length) return true
      }
    }
    const follow = async (): Promise<void> => {
      try {
        if (await read()) return setLog((before) => ({ ...before, state: "ended" }))
      } catch {
        if (!ending.signal.aborted) setLog((before) => ({ ...before, state: "broken" }))
      }
      if (!ending.signal.aborted) timer = setTimeout(() => void follow(), retryMs)
    }
    void follow()
    return () => {
      ending.abort()
      clearTimeout(timer)
    }
  }, [path])
  return log
}
