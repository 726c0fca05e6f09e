/** The state store of this machine, for commands that work on it without a control plane. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Reactivity from "effect/reactivity/Reactivity"
import { AppConfig } from "#src/config.ts"
import { tableRules } from "#src/features.ts"
import { Host } from "#src/infra/host/Host.ts"
import { PostgresBinaries } from "#src/infra/postgres/PostgresBinaries.ts"
import { StateStoreServer } from "#src/infra/postgres/StateStoreServer.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { connect } from "#src/store/migrate.ts"
import { failure } from "./failure.ts"

/** This machine and the state store's own server on it. */
export const machine = StateStoreServer.layer.pipe(
  Layer.provideMerge(PostgresBinaries.layer),
  Layer.provideMerge(Host.layer)
)

/** The store that settings name, or the embedded one, which is started when it does not run. */
export const store = Layer.mergeAll(KeyRing.layer, tableRules).pipe(
  Layer.provideMerge(
    Layer.unwrap(
      Effect.gen(function* () {
        const { databaseUrl } = yield* AppConfig
        const url = databaseUrl ?? (yield* (yield* StateStoreServer).ensureRunning)
        yield* Effect.scoped(connect(url))
        return Db.layer({ url })
      }).pipe(Effect.provide(Reactivity.layer))
    )
  )
)

/** What a data folder holds from its first moments on. */
const first = new Set(["run", "ports", "postgres", "control-planes", "encryption.keys", "lost+found"])

const entriesOf = (dir: string) =>
  Effect.tryPromise({
    try: () =>
      fs.readdir(dir).catch((error: NodeJS.ErrnoException) => {
        if (error.code === "ENOENT") return undefined
        throw error
      }),
    catch: (cause) => failure(`Cannot look into ${dir}: ${String(cause)}`)
  })

/** Whether anything of ours is there. */
export const dataIsIn = (dir: string) =>
  Effect.map(entriesOf(dir), (entries) => entries?.includes("ports") === true)

/**
 * A data folder is given to the user that servers run as, and removed as a whole: one that holds something else, such
 * as a home, must not be taken for it.
 */
export const refuseForeign = Effect.fnUntraced(function* (dir: string) {
  const entries = (yield* entriesOf(dir)) ?? []
  if (entries.includes("ports") || entries.every((name) => first.has(name))) return
  return yield* failure(
    `${dir} (SVC_DATA_DIR) is not empty and was not made by svc; name a folder of its own, such as ${path.join(dir, "svc")}`
  )
})
