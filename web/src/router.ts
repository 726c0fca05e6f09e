/** Addresses of the dashboard: what is shown is in the address, so that back, forward, reload and sharing work. */
import { useSyncExternalStore } from "react"
import { appPath } from "./api/place.ts"

export interface Place {
  /** Parts of the path below the dashboard's own, decoded. */
  readonly parts: ReadonlyArray<string>
  readonly query: URLSearchParams
}

const listeners = new Set<() => void>()
const changed = () => {
  current = read()
  for (const listener of listeners) listener()
}
addEventListener("popstate", changed)

/** What cannot be decoded names nothing. */
const decoded = (part: string): string => {
  try {
    return decodeURIComponent(part)
  } catch {
    return ""
  }
}
const read = (): Place => ({
  parts: location.pathname
    .slice(appPath.length)
    .split("/")
    .filter((part) => part !== "")
    .map(decoded),
  query: new URLSearchParams(location.search)
})
let current = read()

export const usePlace = (): Place =>
  useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => current
  )

/** The address of a page: `pathTo("main", "resources")`. */
export const pathTo = (...parts: ReadonlyArray<string>): string =>
  appPath + parts.map(encodeURIComponent).join("/")

/** The same with a query; what is empty is left out. */
export const withQuery = (path: string, query: Readonly<Record<string, string>>): string => {
  const given = Object.entries(query).filter(([, value]) => value !== "")
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`
}

export const go = (path: string, { replace = false } = {}): void => {
  if (path === `${location.pathname}${location.search}`) return
  history[replace ? "replaceState" : "pushState"](null, "", path)
  changed()
  if (!replace) scrollTo(0, 0)
}
