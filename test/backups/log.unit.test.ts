import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { defaultBackupPolicy } from "#schemas/backup-policy.ts"
import { type BaseRange, clockMargin, isHistory, isSegment, numberOf } from "#src/backups/archive/log.ts"
import { isKept, kept } from "#src/backups/retention.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { chainOf, type LogFile, recoveryTo, windowsOf } from "./segments.ts"

const minute = 60_000
const day = 86_400_000
const start = Date.UTC(2026, 0, 1)
const hex = (value: number) => value.toString(16).toUpperCase().padStart(8, "0")
const name = (number: number, timeline = 1) =>
  `${hex(timeline)}${hex(Math.floor(number / 1_024))}${hex(number % 1_024)}`
/** Segment n was written last at minute n. */
const at = (number: number) => new Date(start + number * minute)
const segment = (number: number, timeline = 1): LogFile => ({
  name: name(number, timeline),
  finishedAt: at(number)
})
const range = (from: number, to: number, timeline = 1) =>
  Array.from({ length: to - from + 1 }, (_, index) => segment(from + index, timeline))
/** A backup that begins in one segment and ends in another. */
const base = (id: string, from: number, to: number, timeline = 1): BaseRange => ({
  id,
  startSegment: name(from, timeline),
  stopSegment: name(to, timeline),
  timeline,
  consistentAt: at(to - 0.5)
})
const before = (date: Date, ms: number) => new Date(date.getTime() - ms)

describe("the log of a database", () => {
  it("names are numbers across the file boundary", () => {
    assert.strictEqual(numberOf(name(1_023)) + 1, numberOf(name(1_024)))
    assert.strictEqual(name(1_024), "000000010000000100000000")
    assert.isTrue(isSegment(name(5)))
    for (const other of [`${name(5)}.00000028.backup`, `${name(5)}.partial`, "00000002.history", ""]) {
      assert.isFalse(isSegment(other))
    }
    assert.isTrue(isHistory("00000002.history"))
  })

  it("a window begins when the backup is consistent, and ends a moment before the last segment's last write", () => {
    const windows = windowsOf([base("a", 3, 4)], range(1, 9))
    assert.deepStrictEqual(windows, [{ from: at(3.5), to: before(at(9), clockMargin) }])
  })

  it("a backup whose own segments are not all there gives no window", () => {
    for (const log of [range(1, 4), [...range(1, 3), ...range(5, 9)], range(4, 9), []]) {
      assert.deepStrictEqual(windowsOf([base("a", 3, 5)], log), [])
      assert.isUndefined(chainOf(base("a", 3, 5), log))
    }
  })

  it("a gap ends a window; what follows can be restored from the next backup on", () => {
    const log = [...range(1, 9), ...range(11, 20)]
    const windows = windowsOf([base("a", 2, 3), base("b", 14, 15)], log)
    assert.deepStrictEqual(windows, [
      { from: at(2.5), to: before(at(9), clockMargin) },
      { from: at(14.5), to: before(at(20), clockMargin) }
    ])
    assert.isUndefined(recoveryTo([base("a", 2, 3), base("b", 14, 15)], log, at(12)))
    assert.strictEqual(recoveryTo([base("a", 2, 3)], log, at(8))?.base.id, "a")
    assert.isUndefined(recoveryTo([base("a", 2, 3)], log, at(15)))
  })

  it("a flush reaches to its own moment, while its segment and all before it are there", () => {
    const flushed = at(9.9)
    const log = [...range(1, 8), { ...segment(9), flushedAt: flushed }]
    assert.deepStrictEqual(windowsOf([base("a", 2, 3)], log)[0]?.to, flushed)
    assert.deepStrictEqual(windowsOf([base("a", 2, 3)], [...log, segment(11)])[0]?.to, flushed)
    const gap = log.filter((one) => one.name !== name(6))
    assert.deepStrictEqual(windowsOf([base("a", 2, 3)], gap)[0]?.to, before(at(5), clockMargin))
  })

  it("a recovery takes the newest backup before the moment, and the log until a commit that is surely later", () => {
    const bases = [base("a", 2, 3), base("b", 10, 11), base("c", 20, 21)]
    const found = recoveryTo(bases, range(1, 30), at(15.5))
    assert.strictEqual(found?.base.id, "b")
    assert.deepStrictEqual(
      [...(found?.files ?? [])],
      range(10, 16).map((one) => one.name)
    )
    // Before its own end a backup is of no use, however near the moment is.
    assert.strictEqual(recoveryTo(bases, range(1, 30), at(10.4))?.base.id, "a")
    assert.isUndefined(recoveryTo(bases, range(1, 30), at(2.4)))
    // Where the newer one's log was lost, the older one serves.
    const holed = range(1, 30).filter((one) => one.name !== name(11))
    assert.isUndefined(recoveryTo(bases, holed, at(15)))
    assert.strictEqual(recoveryTo(bases, holed, at(9))?.base.id, "a")
  })

  it("a recovery follows the newest timeline, with its history, and not what the old one wrote after it", () => {
    const history: LogFile = { name: "00000002.history", finishedAt: null }
    // The first timeline wrote 11 and 12, which the second knows nothing of; it has its own.
    const log = [history, ...range(1, 12), ...range(11, 15, 2)]
    const found = recoveryTo([base("a", 2, 3)], log, at(14))
    assert.include(found?.files ?? [], "00000002.history")
    assert.includeMembers([...(found?.files ?? [])], [name(11, 2), name(12, 2), name(13, 2)])
    // A segment that the second should have is missing; the first one's does not stand for it.
    const torn = [history, ...range(1, 12), segment(11, 2), segment(13, 2)]
    assert.deepStrictEqual(windowsOf([base("a", 2, 3)], torn)[0]?.to, before(at(11), clockMargin))
  })
})

describe("retention", () => {
  campaign(
    it.live,
    "retention",
    "whatever the history and the policy, what was promised can be restored after pruning, and pruning again changes nothing",
    { rounds: 30 },
    ({ seed }) =>
      Effect.sync(() => {
        const random = new Seeded(seed)
        const pick = (most: number) => random.int(0, most)
        // A segment an hour and a backup about every day, for some months.
        const hours = 24 * (5 + pick(100))
        const log: ReadonlyArray<LogFile> = Array.from({ length: hours }, (_, index) => ({
          name: name(index),
          finishedAt: new Date(start + index * 60 * minute)
        }))
        const bases: Array<BaseRange> = []
        for (let hour = pick(20); hour < hours - 2; hour += 12 + pick(30)) {
          bases.push({
            ...base(`b${hour}`, hour, hour + 1),
            consistentAt: new Date(start + (hour + 0.9) * 60 * minute)
          })
        }
        const now = new Date(start + hours * 60 * minute)
        const policy = {
          ...defaultBackupPolicy,
          pitrDays: pick(20),
          dailyDays: pick(30),
          weeklyWeeks: pick(10),
          monthlyMonths: pick(5)
        }
        const keep = kept(bases, policy, now, true, now)
        const keptBases = bases.filter(({ id }) => keep.bases.has(id))
        const keptLog = log.filter((one) => isKept(keep, one.name))

        // Every moment of the promised days that could be restored before still can.
        for (let i = 0; i < 5; i++) {
          const moment = new Date(now.getTime() - random.between(0, 1) * policy.pitrDays * day)
          if (recoveryTo(bases, log, moment) !== undefined) {
            assert.isDefined(recoveryTo(keptBases, keptLog, moment), `at ${moment.toISOString()}`)
          }
        }
        // Every backup that is kept is whole.
        for (const one of keptBases) assert.isDefined(chainOf(one, keptLog), one.id)
        assert.isTrue(keep.bases.has(bases.at(-1)?.id ?? ""))
        const again = kept(keptBases, policy, now, true, now)
        assert.deepStrictEqual(
          [again.bases, keptLog.filter((one) => !isKept(again, one.name))],
          [keep.bases, []]
        )
        // It is not simply everything.
        const promised =
          1 + policy.pitrDays * 2 + 1 + policy.dailyDays + policy.weeklyWeeks + 1 + policy.monthlyMonths + 3
        assert.isAtMost(keptBases.length, promised)
      })
  )

  it("a history that does not go on ends with its time", () => {
    const bases = [base("a", 2, 3)]
    const policy = { ...defaultBackupPolicy, dailyDays: 0, weeklyWeeks: 0, monthlyMonths: 0 }
    const until = at(9)
    const soon = kept(bases, policy, new Date(+until + 6 * day), false, until)
    assert.deepStrictEqual([...soon.bases], ["a"])
    const late = kept(bases, policy, new Date(+until + 8 * day), false, until)
    assert.deepStrictEqual([late.bases.size, late.from], [0, undefined])
    // One that goes on keeps its newest backup whatever its age.
    assert.strictEqual(kept(bases, policy, new Date(+until + 800 * day), true, until).bases.size, 1)
  })
})
