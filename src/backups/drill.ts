/** Proves a backup by restoring it: the only proof there is. */
import * as Effect from "effect/Effect"
import { BackupFailed } from "./base.ts"
import type { ClaimedJob, Progress } from "./Jobs.ts"

export const makeDrill = Effect.succeed({
  run: (_job: ClaimedJob, _tell: (progress: Progress) => void): Effect.Effect<void, BackupFailed> =>
    Effect.fail(new BackupFailed({ message: "Drills are not available yet", again: false }))
})
