import * as Config from "effect/Config"
import * as Schema from "effect/Schema"
import { atLeastOne } from "#src/settings.ts"

/** Alerts take what is older than 90 seconds for no data. */
const LookSeconds = Schema.FiniteFromString.check(
  Schema.isInt(),
  Schema.isBetween({ minimum: 5, maximum: 60 })
)

/** Between two looks at what the store knows. */
export const storeLookSeconds = 15

export const settings = Config.all({
  /** Of an organization, so many resources have a history; the others have their newest measurements only. */
  resourcesWithHistory: atLeastOne("SVC_METRICS_RESOURCES", 2_000),
  /** Between two looks at what runs on a machine. */
  lookSeconds: Config.schema(LookSeconds, "SVC_METRICS_SECONDS").pipe(Config.withDefault(15))
})
