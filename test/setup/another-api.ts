/** Another process's worth of API over the store of a test's control plane. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import { MinimumLogLevel } from "effect/References"
import { AppConfig, type Settings } from "#src/config.ts"
import { controlPlane } from "#src/main.ts"
import { Plane } from "./control-plane.ts"
import { freePort } from "./postgres.ts"

/** Answers its URL. It ends with the scope. */
export const anotherApi = Effect.fnUntraced(function* (
  settings: Partial<Settings> = {},
  variables: Readonly<Record<string, string>> = {},
  /** What it logs, of every level, and its traces. */
  watched: {
    readonly logger?: Logger.Logger<unknown, void>
    readonly tracer?: Layer.Layer<never>
  } = {}
) {
  const { dataDir, databaseUrl } = yield* Plane
  const [port, metricsPort] = yield* Effect.promise(() => Promise.all([freePort(), freePort()]))
  yield* Layer.build(
    controlPlane.pipe(
      Layer.provide(
        AppConfig.layerWith(
          {
            dataDir,
            databaseUrl: Redacted.make(databaseUrl),
            port,
            metricsPort,
            publicUrl: `http://127.0.0.1:${port}`,
            rateLimit: 100_000,
            roles: new Set(["api"]),
            ...settings
          },
          variables
        )
      ),
      Layer.provide(Logger.layer(watched.logger === undefined ? [] : [watched.logger])),
      Layer.provide(Layer.succeed(MinimumLogLevel, watched.logger === undefined ? "Info" : "Trace")),
      Layer.provide(watched.tracer ?? Layer.empty)
    )
  )
  return `http://127.0.0.1:${port}`
})
