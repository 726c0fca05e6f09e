/**
 * When a cron job runs: five fields in a time zone.
 *
 * `croner` reads the fields and walks them in plain wall-clock time; what a wall-clock time means where clocks are
 * changed is decided here:
 *
 * - Hours that are named (`30 2 * * *`): every named time happens once a day. One that clocks skip happens at the first
 *   instant after the gap, and several that are skipped happen once together. One that clocks show twice happens the
 *   first time.
 * - Hours that begin with an asterisk (`30 * * * *`): the job follows the clock as it goes. It runs in both of the hours
 *   that look alike, and not for times that the clock never shows.
 */
import { Cron } from "croner"

const minute = 60_000
const hour = 60 * minute
const day = 24 * hour

/** Milliseconds of the next run after `after`; undefined: there is none. */
export const nextRun = (schedule: string, timezone: string, after: number): number | undefined => {
  const zone = zoneOf(timezone)
  const fields = canonicalSchedule(schedule)
  const walk = walkerOf(fields)
  return fields.split(" ")[1]?.startsWith("*") === true
    ? followClock(walk, zone, after)
    : onceEach(walk, zone, after)
}

/** Why these are not five fields that sometimes match; undefined: they are. */
export const scheduleFault = (schedule: string): string | undefined => {
  const fields = canonicalSchedule(schedule).split(" ")
  if (fields.length !== 5) {
    return "must have exactly five fields: minute, hour, day of month, month, day of week"
  }
  const odd = fields.find(
    (field) => !/^[\dA-Z*,/-]+$/.test(field) || /(?<![A-Z])(L|W|LW)(?![A-Z])/.test(field)
  )
  if (odd !== undefined) return `holds "${odd}", which is made of more than numbers, names and * , - /`
  const outside = ranges
    .map(({ name, first, last }, index) => {
      // What follows a slash is a step and no value of the field.
      const values = (fields[index] ?? "").replaceAll(/\/\d+/g, "").match(/\d+/g) ?? []
      const value = values.find((one) => Number(one) < first || Number(one) > last)
      return value === undefined
        ? undefined
        : `is no cron expression: the ${name} ${value} is not between ${first} and ${last}`
    })
    .find((fault) => fault !== undefined)
  if (outside !== undefined) return outside
  try {
    return walkerOf(fields.join(" "))(Date.UTC(2000, 0, 1)) === undefined
      ? "names a day that there never is"
      : undefined
  } catch (error) {
    const said = error instanceof Error ? error.message.replace(/^CronPattern: /, "") : "it cannot be read"
    return `is no cron expression: ${said}`
  }
}

/** The fields as people count them; the library counts months and days from zero where it names them. */
const ranges = [
  { name: "minute", first: 0, last: 59 },
  { name: "hour", first: 0, last: 23 },
  { name: "day of the month", first: 1, last: 31 },
  { name: "month", first: 1, last: 12 },
  { name: "day of the week", first: 0, last: 7 }
] as const

export const isTimezone = (name: string): boolean => {
  if (!/^[A-Za-z]/.test(name)) return false
  try {
    zoneOf(name)
    return true
  } catch {
    return false
  }
}

/** One spelling: single spaces, names in capitals. */
export const canonicalSchedule = (schedule: string): string =>
  schedule.trim().replace(/\s+/g, " ").toUpperCase()

/** Fields, walked as if there were no time zones: from one wall-clock time to the next that matches. */
type Walk = (wall: number) => number | undefined

const remember = <A>(make: (key: string) => A) => {
  const known = new Map<string, A>()
  return (key: string): A => {
    const found = known.get(key)
    if (found !== undefined) return found
    const made = make(key)
    // Users name the keys: what is kept has a bound.
    if (known.size >= 10_000) known.clear()
    known.set(key, made)
    return made
  }
}

const walkerOf = remember((fields): Walk => {
  const cron = new Cron(fields, { timezone: "UTC", mode: "5-part", paused: true })
  return (wall) => cron.nextRun(new Date(wall))?.getTime()
})

interface Zone {
  /** Milliseconds that clocks are ahead of UTC at an instant. */
  readonly offset: (instant: number) => number
}

const zoneOf = remember((name): Zone => {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone: name,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric"
  })
  if (name === "UTC") return { offset: () => 0 }
  return {
    offset: (instant) => {
      const parts: Record<string, number> = {}
      for (const { type, value } of format.formatToParts(instant)) parts[type] = Number(value)
      const { year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0 } = parts
      return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(instant / 1000) * 1000
    }
  }
})

/** The first instant in `(from, to]` at which clocks are as they are at `to`. They change once in between. */
const change = (zone: Zone, from: number, to: number): number => {
  const after = zone.offset(to)
  let [low, high] = [from, to]
  while (high - low > 1000) {
    const middle = low + Math.floor((high - low) / 2000) * 1000
    if (zone.offset(middle) === after) high = middle
    else low = middle
  }
  return high
}

/** The first instant at which clocks show `wall`, from `earliest` on; undefined: they never do. */
const shownAt = (zone: Zone, wall: number, earliest = Number.NEGATIVE_INFINITY): number | undefined =>
  [zone.offset(wall - day), zone.offset(wall + day)]
    .map((offset) => wall - offset)
    .sort((a, b) => a - b)
    .find((instant) => instant >= earliest && instant + zone.offset(instant) === wall)

const onceEach = (walk: Walk, zone: Zone, after: number): number | undefined => {
  // A time that is not later than the clock's has had its first showing.
  let wall = walk(after + zone.offset(after))
  while (wall !== undefined) {
    const shown = shownAt(zone, wall)
    const instant = shown ?? change(zone, wall - zone.offset(wall + day), wall - zone.offset(wall - day))
    if (instant > after) return instant
    wall = walk(wall)
  }
  return undefined
}

/** No zone's clocks go back by more. */
const largestStep = 3 * hour

const followClock = (walk: Walk, zone: Zone, after: number): number | undefined => {
  const offset = zone.offset(after)
  let from = after
  let wall = walk(after + offset)
  if (zone.offset(after + largestStep) !== offset) {
    const changed = change(zone, after, after + largestStep)
    if (wall !== undefined && wall - offset < changed) return wall - offset
    // Clocks may go back to times that were passed already.
    from = changed
    wall = walk(changed + zone.offset(changed) - 1000)
  }
  while (wall !== undefined) {
    const shown = shownAt(zone, wall, from)
    if (shown !== undefined) return shown
    wall = walk(wall)
  }
  return undefined
}
