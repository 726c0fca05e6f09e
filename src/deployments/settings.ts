import * as Config from "effect/Config"
import { atLeastOne } from "#src/settings.ts"

export const settings = Config.all({
  /** Days that deployments and their logs are kept which nobody can choose any more. */
  keptDays: atLeastOne("SVC_DEPLOYMENT_RETENTION_DAYS", 90)
})
