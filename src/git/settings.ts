import * as Config from "effect/Config"
import { atLeastOne } from "#src/settings.ts"

export const settings = Config.all({
  /** Seconds between two looks at a branch that nobody told of. */
  pollSeconds: atLeastOne("SVC_GIT_POLL_SECONDS", 300)
})
