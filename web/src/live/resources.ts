/**
 * The organization's resources as the stream tells them, for components. What came since the last frame is taken in at
 * once, so a burst of changes costs one drawing. Another organization's are never kept beside them.
 */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { useSyncExternalStore } from "react"
import { ResourceChange, type ResourceSummary } from "#src/api/definition/resource-summary.ts"
import { apiUrl } from "../api/place.ts"
import { connect, type Stream } from "./connect.ts"
import type { Connection, Tell } from "./protocol.ts"

export type Resource = typeof ResourceSummary.Type

export interface Live {
  /** By address. */
  readonly all: ReadonlyArray<Resource>
  readonly byUid: ReadonlyMap<string, Resource>
  /** Whether these are all that there were when the stream began. */
  readonly complete: boolean
  readonly connection: Connection
}

const nothing: Live = {
  all: [],
  byUid: new Map(),
  complete: false,
  connection: { state: "connecting" }
}

const decode = Schema.decodeUnknownOption(ResourceChange)
const listeners = new Set<() => void>()
let live = nothing
let stream: Stream | undefined
let followed = ""
let reconnects = 0

const show = (next: Live) => {
  if (live.connection.state === "stale" && next.connection.state === "live") reconnects++
  live = next
  for (const listener of listeners) listener()
}

/** Frames do not come while nobody sees the page, not even one that was asked for before it was hidden. */
const nextFrame = (run: () => void) => {
  const now = () => {
    clearTimeout(timer)
    cancelAnimationFrame(frame)
    run()
  }
  const timer = setTimeout(now, 200)
  const frame = requestAnimationFrame(now)
}

/** Makes `live` from messages, a frame's at a time. */
const collector = () => {
  let byUid = new Map<string, Resource>()
  let sorted: ReadonlyArray<Resource> = []
  let waiting: Array<Tell> = []
  let closed = false

  const takeIn = (tells: ReadonlyArray<Tell>) => {
    let { complete, connection } = live
    let moved = false
    let touched = false
    for (const tell of tells) {
      if (tell.type === "connection") connection = tell.connection
      else if (tell.type === "complete") complete = true
      else if (tell.type === "reset") {
        byUid = new Map()
        complete = false
        moved = true
      } else
        for (const raw of tell.changes) {
          const change = Option.getOrUndefined(decode(raw))
          if (change === undefined) continue
          const { deleted, resource } = change
          touched = true
          moved ||= deleted || byUid.get(resource.uid)?.address !== resource.address
          if (deleted) byUid.delete(resource.uid)
          else byUid.set(resource.uid, resource)
        }
    }
    if (moved) {
      sorted = [...byUid.values()].sort((a, b) =>
        a.address < b.address ? -1 : a.address > b.address ? 1 : 0
      )
    } else if (touched) sorted = sorted.map((before) => byUid.get(before.uid) ?? before)
    show({ all: sorted, byUid: moved || touched ? new Map(byUid) : live.byUid, complete, connection })
  }

  return {
    tell: (message: Tell) => {
      waiting.push(message)
      if (waiting.length > 1) return
      nextFrame(() => {
        const tells = waiting
        waiting = []
        if (!closed) takeIn(tells)
      })
    },
    close: () => {
      closed = true
    }
  }
}

/** Follows this organization, as this person, and forgets what was followed before. */
export const followOrganization = (org: string, reader: string): void => {
  const key = `${reader} ${org}`
  if (key === followed) return
  stream?.close()
  followed = key
  show(nothing)
  if (org === "") {
    stream = undefined
    return
  }
  const { tell, close } = collector()
  const url = `${apiUrl}/v1/orgs/${encodeURIComponent(org)}/resources/watch`
  const opened = connect(url, reader, tell)
  stream = {
    retry: opened.retry,
    close: () => {
      close()
      opened.close()
    }
  }
}

export const retryConnection = (): void => stream?.retry()

const subscribe = (listener: () => void) => {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export const useLive = (): Live => useSyncExternalStore(subscribe, () => live)

/** How often the control plane came back: what was asked before may be old, or have failed. */
export const useReconnects = (): number => useSyncExternalStore(subscribe, () => reconnects)
