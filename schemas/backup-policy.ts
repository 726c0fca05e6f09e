/** How long what of a database is kept, and where besides this machine. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

const count = (most: number, usual: number) =>
  Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: most })).pipe(
    Schema.withDecodingDefaultKey(Effect.succeed(usual))
  )
const strings = Schema.Array(Schema.NonEmptyString.check(Schema.isMaxLength(200)))

export const BackupPolicy = Schema.Struct({
  /** Any moment of so many days can be restored. */
  pitrDays: count(365, 7),
  /** The newest backup of each of so many days, weeks and months is kept beyond that. */
  dailyDays: count(3_650, 7),
  weeklyWeeks: count(520, 4),
  monthlyMonths: count(120, 3),
  /** Backup destinations of the organization that get a copy of everything. */
  destinationIds: strings
    .check(Schema.isMaxLength(20))
    .pipe(Schema.withDecodingDefaultKey(Effect.succeed([]))),
  copyRegions: strings
    .check(Schema.isMaxLength(0, { message: "copies in other regions are not available in this release" }))
    .pipe(Schema.withDecodingDefaultKey(Effect.succeed([])))
}).annotate({ identifier: "BackupPolicy" })
export type BackupPolicy = typeof BackupPolicy.Type

export const defaultBackupPolicy: BackupPolicy = {
  pitrDays: 7,
  dailyDays: 7,
  weeklyWeeks: 4,
  monthlyMonths: 3,
  destinationIds: [],
  copyRegions: []
}
