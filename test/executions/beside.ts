/** What works on executions beside requests and reconciles, over the store and the folder of a running control plane. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { AppConfig, type Settings } from "#src/config.ts"
import * as services from "#src/executions/services.ts"
import { Host } from "#src/infra/host/Host.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { Plane } from "#test/setup/control-plane.ts"

export const beside = (settings: Partial<Settings>) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const { dataDir, databaseUrl } = yield* Plane
      const url = Redacted.make(databaseUrl)
      return Layer.merge(services.layer, Resources.layer).pipe(
        Layer.provideMerge(PlatformSecrets.layer),
        Layer.provideMerge(KeyRing.layer),
        Layer.provideMerge(Db.layer({ url })),
        Layer.provideMerge(Host.layer),
        Layer.provideMerge(AppConfig.layerWith({ dataDir, databaseUrl: url, ...settings }))
      )
    })
  )
