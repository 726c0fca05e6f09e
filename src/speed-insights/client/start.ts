/**
 * Measures a page in its visitor's browser, by web-vitals, and sends it as one batch when the page is hidden: that is when
 * CLS and INP are known. A measurement is sent once; what it would still become after the page was seen again is left out.
 */
import { type MetricType, onCLS, onFCP, onINP, onLCP, onTTFB } from "web-vitals"

export interface Options {
  /** `endpoint` of `svc speed get`. */
  readonly endpoint: string
  /** Default `production`. */
  readonly environment?: string
  /** Makes a route of a path, without what names a visitor or a thing. By default ids become `:id`. */
  readonly normalize?: (path: string) => string
  /** Measure nobody who asks not to be tracked (Do Not Track, Global Privacy Control). Default false. */
  readonly respectDoNotTrack?: boolean
}

export interface Measuring {
  /** Sends what there is now. */
  readonly flush: () => void
}

const version = "1.0.0"
/** Events of one batch, well below the bytes that one may have. */
const most = 50
const longestRoute = 200
const largest = 3_600_000

/** Numbers, UUIDs and long hexadecimal words. */
const usualRoute = (path: string): string =>
  path.replace(/\/(\d+|[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}|[\da-f]{16,})(?=\/|$)/gi, "/:id")

interface WithPrivacyControl {
  readonly globalPrivacyControl?: boolean
}

export const start = ({
  endpoint,
  environment = "production",
  normalize = usualRoute,
  respectDoNotTrack = false
}: Options): Measuring => {
  const { doNotTrack, globalPrivacyControl }: Navigator & WithPrivacyControl = navigator
  if (respectDoNotTrack && (doNotTrack === "1" || globalPrivacyControl === true)) return { flush: () => {} }

  const routeOf = (path: string): string => normalize(path).slice(0, longestRoute)
  const landing = routeOf(location.pathname)
  const device = matchMedia("(max-width: 767px)").matches ? "mobile" : "desktop"
  const waiting = new Map<string, object>()
  const sent = new Set<string>()

  const add = ({ id, name, value, navigationType, navigationURL }: MetricType): void => {
    const soft = navigationType === "soft-navigation"
    // A route that the page itself shows waits for no first byte.
    if (sent.has(id) || value > largest || (soft && name === "TTFB")) return
    waiting.set(id, {
      eventId: id,
      metric: name,
      value,
      timestamp: new Date().toISOString(),
      route: soft ? routeOf(new URL(navigationURL ?? "", location.href).pathname) : landing,
      device,
      navigationType: soft ? "other" : navigationType.replace("-cache", "")
    })
    if (waiting.size >= most) flush()
  }

  const flush = (): void => {
    if (waiting.size === 0) return
    const events = [...waiting.values()]
    for (const id of waiting.keys()) sent.add(id)
    waiting.clear()
    const body = JSON.stringify({
      schemaVersion: 1,
      // 96 random bits. Pages without TLS have no `crypto.randomUUID`.
      batchId: crypto.getRandomValues(new Uint32Array(3)).join("-"),
      environment,
      sdkVersion: version,
      events
    })
    // What is sent as text needs no preflight, which a page that is going away could not wait for. A beacon brings cookies.
    fetch(endpoint, { method: "POST", body, keepalive: true, credentials: "omit" }).catch(() =>
      navigator.sendBeacon(endpoint, body)
    )
  }

  for (const on of [onTTFB, onFCP, onLCP, onCLS, onINP]) on(add, { reportSoftNavs: true })
  // While it bubbles: one that captures comes before those of web-vitals, which then add CLS and INP too late.
  addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") flush()
  })
  addEventListener("pagehide", flush)
  return { flush }
}
