import * as Config from "effect/Config"
import { atLeastOne } from "#src/settings.ts"

/** Of an organization, so many resources have a history; the others have their newest measurements only. */
export const settings = Config.all({ resourcesWithHistory: atLeastOne("SVC_METRICS_RESOURCES", 2_000) })
