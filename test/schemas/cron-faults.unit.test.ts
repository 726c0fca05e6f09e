import { assert, it } from "@effect/vitest"
import { scheduleFault } from "#schemas/cron-schedule.ts"

it("a value outside of its field is named as it was written, with the bounds that people count by", () => {
  const cases: ReadonlyArray<readonly [schedule: string, fault: string]> = [
    ["60 * * * *", "the minute 60 is not between 0 and 59"],
    ["0 24 * * *", "the hour 24 is not between 0 and 23"],
    ["0 0 0 * *", "the day of the month 0 is not between 1 and 31"],
    ["0 0 5-40 * *", "the day of the month 40 is not between 1 and 31"],
    ["0 0 * 13 *", "the month 13 is not between 1 and 12"],
    ["0 0 * 0 *", "the month 0 is not between 1 and 12"],
    ["0 0 * 1,2-13/2 *", "the month 13 is not between 1 and 12"],
    ["0 0 * * 8", "the day of the week 8 is not between 0 and 7"]
  ]
  for (const [schedule, fault] of cases) {
    assert.strictEqual(scheduleFault(schedule), `is no cron expression: ${fault}`, schedule)
  }
  for (const schedule of ["59 23 31 12 7", "*/15 0-23/23 1 JAN-DEC SUN", "0 0 1 1 0", "*/59 * * * *"]) {
    assert.isUndefined(scheduleFault(schedule), schedule)
  }
})
