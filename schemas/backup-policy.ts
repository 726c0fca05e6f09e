/** How long what of a database is kept, and where besides this machine. */
import * as Schema from "effect/Schema"
import { checkedWhenDecoded, withDefault } from "./input.ts"

const count = (most: number, usual: number, description: string) =>
  withDefault(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: most })), usual, description)
const strings = Schema.Array(Schema.NonEmptyString.check(Schema.isMaxLength(200))).check(
  Schema.isMaxLength(20)
)

export const BackupPolicy = Schema.Struct({
  pitrDays: count(365, 7, "Any moment of so many days can be restored"),
  dailyDays: count(3_650, 7, "Days beyond that of which the newest backup is kept"),
  weeklyWeeks: count(520, 4, "Weeks of which the newest backup is kept"),
  monthlyMonths: count(120, 3, "Months of which the newest backup is kept"),
  destinationIds: withDefault(
    strings,
    [],
    "Ids of backup destinations of the organization that get a copy of everything"
  ),
  copyRegions: withDefault(
    checkedWhenDecoded(
      strings,
      strings.check(
        Schema.isMaxLength(0, { message: "copies in other regions are not available in this release" })
      )
    ),
    [],
    "Copies in other regions; not available in this release"
  )
})
export type BackupPolicy = typeof BackupPolicy.Type

export const defaultBackupPolicy: BackupPolicy = Schema.decodeSync(BackupPolicy)({})
