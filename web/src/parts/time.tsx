/** Times: relative to now, with the exact one in a title. One clock ticks for all of them. */
import { useMemo, useSyncExternalStore } from "react"

let now = Date.now()
const listeners = new Set<() => void>()
let ticking: ReturnType<typeof setInterval> | undefined

/** Milliseconds, every second anew. */
export const useNow = (): number =>
  useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      ticking ??= setInterval(() => {
        now = Date.now()
        for (const tell of listeners) tell()
      }, 1_000)
      return () => {
        listeners.delete(listener)
        if (listeners.size > 0) return
        clearInterval(ticking)
        ticking = undefined
      }
    },
    () => now
  )

/**
 * The same by the clock of the server, which said with its answer what time it was: this one may be wrong. It is behind by
 * as long as the answer was under way, and never ahead.
 */
export const useNowAt = (answered: string): number => {
  const ahead = useMemo(() => Date.parse(answered) - Date.now(), [answered])
  return useNow() + ahead
}

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" })
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" })
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" })

const units: ReadonlyArray<readonly [seconds: number, name: string]> = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"]
]
/** Such as `6 min`: the largest unit alone. */
export const duration = (ms: number): string => {
  const seconds = Math.max(0, Math.round(ms / 1000))
  const [size, name] = units.find(([size]) => seconds >= size) ?? [1, "s"]
  return `${Math.floor(seconds / size)} ${name}`
}

/** The reader's time zone first, then UTC exactly. */
const titleOf = (at: string): string => `${local.format(new Date(at))} (${at} UTC)`.replace("Z UTC", " UTC")

/** Of a field of type `datetime-local`: to the second, in the reader's time zone. */
export const localInput = (at: number): string =>
  new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19)

type Props = { readonly at: string }

/** How long ago. A clock that runs behind the server's does not make it the future. */
export const Ago = ({ at }: Props) => (
  <time dateTime={at} title={titleOf(at)} className="whitespace-nowrap tabular-nums">
    {duration(useNow() - Date.parse(at))}
  </time>
)

/** How long until then. */
export const In = ({ at }: Props) => {
  const left = Date.parse(at) - useNow()
  return (
    <time dateTime={at} title={titleOf(at)} className="whitespace-nowrap tabular-nums">
      {left <= 0 ? "now" : `in ${duration(left)}`}
    </time>
  )
}

/** The time of day, with the date where it is not today. */
export const At = ({ at }: Props) => {
  const date = new Date(at)
  const today = new Date().toDateString() === date.toDateString()
  return (
    <time dateTime={at} title={titleOf(at)} className="whitespace-nowrap tabular-nums">
      {today ? clock.format(date) : `${day.format(date)}, ${clock.format(date)}`}
    </time>
  )
}
