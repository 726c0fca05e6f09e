/** Spans are made where somebody collects them, and only there. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { TracerEnabled } from "effect/References"
import { AppConfig } from "#src/config.ts"
import { telemetry } from "#src/main.ts"

const enabled = (otlpUrl: string | undefined) =>
  Effect.provide(TracerEnabled, telemetry.pipe(Layer.provide(AppConfig.layerWith({ otlpUrl }))))

it.live("spans are made only with a collector", () =>
  Effect.gen(function* () {
    assert.isFalse(yield* enabled(undefined))
    assert.isTrue(yield* enabled("http://127.0.0.1:9"))
  })
)
