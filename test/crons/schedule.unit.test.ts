import { assert, describe, it } from "@effect/vitest"
import { CronExpressionParser } from "cron-parser"
import { canonicalSchedule, isTimezone, nextRun, scheduleFault } from "#schemas/cron-schedule.ts"

const minute = 60_000
const hour = 60 * minute

/** Wall-clock time as if it were UTC, by the platform's own tables, each instant looked up once. */
const walls = (zone: string) => {
  const format = new Intl.DateTimeFormat("sv-SE", {
    timeZone: zone,
    dateStyle: "short",
    timeStyle: "medium"
  })
  const known = new Map<number, number>()
  return (instant: number) => {
    const before = known.get(instant)
    if (before !== undefined) return before
    const shown = Date.parse(`${format.format(instant).replace(" ", "T")}Z`)
    known.set(instant, shown)
    return shown
  }
}

/** The instants at which clocks of a zone are changed, to the minute. */
const changes = (wall: (instant: number) => number, fromYear: number, years: number) => {
  const found: Array<{ at: number; before: number; after: number }> = []
  const offset = (instant: number) => wall(instant) - instant
  for (let day = Date.UTC(fromYear, 0, 1); day < Date.UTC(fromYear + years, 0, 1); day += 24 * hour) {
    if (offset(day) === offset(day + 24 * hour)) continue
    let at = day
    while (offset(at) === offset(day)) at += minute
    found.push({ at, before: offset(day), after: offset(at) })
  }
  return found
}

interface Pattern {
  readonly text: string
  readonly minutes: ReadonlyArray<number>
  /** Undefined: an asterisk. */
  readonly hours: ReadonlyArray<number> | undefined
}

/**
 * The rules once more, the slow way: every minute is looked at. Named hours happen at the first instant at which clocks
 * show them or have passed them; an asterisk happens whenever clocks show its minute.
 */
const slow = (pattern: Pattern, wall: (instant: number) => number, from: number, to: number) => {
  const times: Array<number> = []
  const matches = (shown: number) => {
    const date = new Date(shown)
    return (
      pattern.minutes.includes(date.getUTCMinutes()) &&
      (pattern.hours === undefined || pattern.hours.includes(date.getUTCHours()))
    )
  }
  let latest = wall(from)
  for (let at = from + minute; at <= to; at += minute) {
    const shown = wall(at)
    if (pattern.hours === undefined) {
      if (matches(shown)) times.push(at)
      continue
    }
    let due = false
    for (let passed = latest + minute; passed <= shown; passed += minute) due ||= matches(passed)
    if (due) times.push(at)
    latest = Math.max(latest, shown)
  }
  return times
}

const all = (from: number, to: number, step: number) =>
  Array.from({ length: Math.ceil((to - from) / step) }, (_, index) => from + index * step)
const patterns: ReadonlyArray<Pattern> = [
  { text: "30 2 * * *", minutes: [30], hours: [2] },
  { text: "0 2 * * *", minutes: [0], hours: [2] },
  { text: "15 1 * * *", minutes: [15], hours: [1] },
  { text: "0 0 * * *", minutes: [0], hours: [0] },
  { text: "0,30 0-4 * * *", minutes: [0, 30], hours: [0, 1, 2, 3, 4] },
  { text: "*/20 1-3 * * *", minutes: [0, 20, 40], hours: [1, 2, 3] },
  { text: "45 23 * * *", minutes: [45], hours: [23] },
  { text: "30 * * * *", minutes: [30], hours: undefined },
  { text: "*/15 * * * *", minutes: all(0, 60, 15), hours: undefined }
]
const zones = [
  "America/New_York",
  "America/Santiago",
  "Europe/Berlin",
  "Europe/London",
  "Africa/Cairo",
  "Australia/Lord_Howe",
  "Australia/Sydney",
  "Pacific/Auckland",
  "Atlantic/Azores",
  "America/Havana"
]

const between = (text: string, zone: string, from: number, to: number) => {
  const times: Array<number> = []
  for (let at = nextRun(text, zone, from); at !== undefined && at <= to; at = nextRun(text, zone, at)) {
    times.push(at)
  }
  return times
}
const iso = (times: ReadonlyArray<number>) => times.map((at) => new Date(at).toISOString())

/** Clocks are changed by the same rules each year, on other days of the month. */
const years = 1

describe("schedules", () => {
  for (const zone of zones) {
    it(`follow the rules at every change of clocks in ${zone} for ${years} years`, {
      timeout: 120_000
    }, () => {
      const wall = walls(zone)
      const found = changes(wall, 2025, years)
      assert.isAtLeast(found.length, years, "clocks are changed twice a year there")
      for (const { at } of found) {
        const [from, to] = [at - 12 * hour, at + 24 * hour]
        for (const pattern of patterns) {
          assert.deepStrictEqual(
            iso(between(pattern.text, zone, from, to)),
            iso(slow(pattern, wall, from, to)),
            `"${pattern.text}" in ${zone} around ${new Date(at).toISOString()}`
          )
        }
      }
    })
  }

  /**
   * cron-parser knows changes of whole hours. It moves what a gap swallowed by the length of the gap, where we take the
   * first instant after it, and runs what midnight shows twice the second time, where we take the first.
   */
  it("agree with another implementation at every change of clocks, but for two rules that are known", {
    timeout: 120_000
  }, () => {
    let [same, movedOn, later] = [0, 0, 0]
    for (const zone of zones.filter((name) => name !== "Australia/Lord_Howe")) {
      const wall = walls(zone)
      for (const { at, before, after } of changes(wall, 2025, years)) {
        const [from, to] = [at - 12 * hour, at + 24 * hour]
        const length = Math.abs(after - before)
        for (const { text } of patterns) {
          const what = `"${text}" in ${zone} around ${new Date(at).toISOString()}`
          const other = CronExpressionParser.parse(text, { tz: zone, currentDate: new Date(from) })
          const ours = between(text, zone, from, to)
          for (const time of ours) {
            const theirs = other.next().getTime()
            if (time === theirs) same++
            else if (after > before) {
              assert.strictEqual(time, at, what)
              assert.isTrue(theirs > at && theirs < at + length, what)
              movedOn++
            } else {
              assert.strictEqual(theirs, time + length, what)
              assert.isTrue(time < at && time >= at - length, what)
              later++
            }
          }
          assert.isAbove(other.next().getTime(), to, what)
        }
      }
    }
    // One fixed time in five zones' gaps; three times of an hour that two zones show twice around midnight.
    assert.deepStrictEqual([movedOn, later], [5 * years, 2 * 3 * years])
    assert.isAbove(same, 3_000 * years)
  })

  it("agree with another implementation wherever clocks are left alone", () => {
    const texts = [
      "*/7 3-5 * * *",
      "0 0 13 * 5",
      "5 4 1,15 * *",
      "0 12 * JAN-MAR mon-fri",
      "0 0 29 2 *",
      "1 * * */2 *"
    ]
    for (const zone of ["UTC", "Asia/Tokyo", "Asia/Kolkata", "America/Phoenix"]) {
      for (const text of texts) {
        const start = Date.UTC(2026, 0, 1)
        const other = CronExpressionParser.parse(text, { tz: zone, currentDate: new Date(start) })
        let at = start
        for (let run = 0; run < 20; run++) {
          at = nextRun(text, zone, at) ?? 0
          assert.strictEqual(
            new Date(at).toISOString(),
            other.next().toDate().toISOString(),
            `${text} in ${zone}`
          )
        }
      }
    }
  })

  it("of days of month and of week mean either", () => {
    const times = between("0 0 13 * 5", "UTC", Date.UTC(2026, 0, 1), Date.UTC(2026, 0, 31))
    assert.deepStrictEqual(
      times.map((at) => new Date(at).getUTCDate()),
      [2, 9, 13, 16, 23, 30]
    )
  })

  it("are five fields that sometimes match", () => {
    const good = ["* * * * *", "0 0 29 2 *", "0 9-17/2 * jan,dec Mon-Fri", "5,10 0 1-15 * 0", "0 0 * * 7"]
    for (const text of good) assert.isUndefined(scheduleFault(text), text)
    const bad = [
      "",
      "* * * *",
      "* * * * * *",
      "@hourly",
      "60 * * * *",
      "* 24 * * *",
      "* * 0 * *",
      "* * * 13 *",
      "* * * * 8",
      "*/0 * * * *",
      "0 0 L * *",
      "0 0 15W * *",
      "0 0 LW * *",
      "0 0 * * 5#2",
      "0 0 * * 5L",
      "? * * * *",
      "0 0 30 2 *",
      "0 0 31 4,6 *",
      "1-0 * * * *"
    ]
    for (const text of bad) assert.isString(scheduleFault(text), text)
  })

  it("in two spellings are one", () => {
    assert.strictEqual(canonicalSchedule("  0 0\t* *  mon "), canonicalSchedule("0 0 * * MON"))
  })

  it("take names of time zones only", () => {
    for (const name of ["UTC", "Europe/Berlin", "America/Argentina/Ushuaia"])
      assert.isTrue(isTimezone(name), name)
    for (const name of ["", "Mars/Olympus", "+01:00", "GMT+25", "../etc"])
      assert.isFalse(isTimezone(name), name)
  })
})
