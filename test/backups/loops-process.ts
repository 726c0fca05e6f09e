/** The loops as a process of their own, to be killed: told by its argument where, and says when it is up. */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { startLoops } from "./world.ts"

const [dataDir = "", storeUrl = ""] = process.argv.slice(2)
Effect.runFork(
  Effect.scoped(
    Effect.gen(function* () {
      yield* startLoops({
        dataDir,
        storeUrl: Redacted.make(storeUrl),
        secrets: memorySecrets(),
        destinations: new Map(),
        databases: new Map()
      })
      process.stdout.write("up\n")
      yield* Effect.never
    })
  )
)
