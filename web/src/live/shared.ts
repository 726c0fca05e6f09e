/** One stream for all tabs that look at the same organization as the same person. It ends with the last of them. */
import { type Following, follow } from "./follow.ts"
import type { Ask, Connection, Tell } from "./protocol.ts"

export interface Port {
  readonly postMessage: (message: Tell) => void
}

interface Shared {
  readonly ports: Set<Port>
  readonly known: Map<string, unknown>
  complete: boolean
  connection: Connection
  following: Following
}

const uidOf = (change: unknown): { readonly uid: string; readonly deleted: boolean } | undefined => {
  if (typeof change !== "object" || change === null || !("resource" in change) || !("deleted" in change))
    return
  const { resource, deleted } = change
  if (typeof resource !== "object" || resource === null || !("uid" in resource)) return
  return typeof resource.uid === "string" ? { uid: resource.uid, deleted: deleted === true } : undefined
}

/** Tabs of other organizations and people have streams of their own. */
export const makeSharing = () => {
  const streams = new Map<string, Shared>()

  const begin = (url: string): Shared => {
    const shared: Shared = {
      ports: new Set(),
      known: new Map(),
      complete: false,
      connection: { state: "connecting" },
      following: { retry: () => {}, stop: () => {} }
    }
    shared.following = follow(url, (message) => {
      if (message.type === "connection") shared.connection = message.connection
      if (message.type === "complete") shared.complete = true
      if (message.type === "reset") {
        shared.known.clear()
        shared.complete = false
      }
      if (message.type === "changes")
        for (const change of message.changes) {
          const of = uidOf(change)
          if (of?.deleted === true) shared.known.delete(of.uid)
          else if (of !== undefined) shared.known.set(of.uid, change)
        }
      for (const port of shared.ports) port.postMessage(message)
    })
    return shared
  }

  /** Answers what to do when the tab is gone. */
  const join = (port: Port, { url, reader }: Extract<Ask, { type: "watch" }>) => {
    const key = `${reader} ${url}`
    const found = streams.get(key)
    const shared = found ?? begin(url)
    streams.set(key, shared)
    shared.ports.add(port)
    if (found !== undefined) {
      port.postMessage({ type: "reset" })
      port.postMessage({ type: "changes", changes: [...shared.known.values()] })
      if (shared.complete) port.postMessage({ type: "complete" })
    }
    port.postMessage({ type: "connection", connection: shared.connection })
    return {
      retry: () => shared.following.retry(),
      leave: () => {
        shared.ports.delete(port)
        if (shared.ports.size > 0) return
        shared.following.stop()
        if (streams.get(key) === shared) streams.delete(key)
      }
    }
  }
  return { join }
}
