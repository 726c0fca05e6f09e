/** The part of the disk that is not for builds. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { BuildContainers } from "#src/builds/BuildContainers.ts"
import { AppConfig } from "#src/config.ts"
import { ContainerEngine, ContainerError } from "#src/infra/containers/ContainerEngine.ts"
import { Installation } from "#src/infra/containers/Installation.ts"

const mebibyte = 1024 * 1024
const asked = (disk: ContainerEngine["Service"]["disk"]) =>
  Effect.result(Effect.flatMap(BuildContainers, ({ hasRoom }) => hasRoom)).pipe(
    Effect.map((result) => (result._tag === "Success" ? "room" : result.failure.errorCode)),
    Effect.provide(
      BuildContainers.layer.pipe(
        Layer.provide([
          Layer.mock(ContainerEngine)({ disk }),
          Layer.mock(Installation)({ labels: {}, label: "", nameOf: (uid) => uid }),
          AppConfig.layerFrom({ SVC_BUILD_FREE_MB: "100" })
        ])
      )
    )
  )

it.effect("nothing is built while less of the disk is free than builds have to leave", () =>
  Effect.gen(function* () {
    const of = (freeMb: number, freeFiles: number) =>
      asked(Effect.succeed({ freeBytes: freeMb * mebibyte, freeFiles }))
    assert.strictEqual(yield* of(100, 100_000), "room")
    assert.strictEqual(yield* of(99, 100_000), "build_unavailable")
    assert.strictEqual(yield* of(100, 99_999), "build_unavailable")
    // The next call finds that out.
    const silent = new ContainerError({ reason: "Unreachable", message: "it does not answer" })
    assert.strictEqual(yield* asked(Effect.fail(silent)), "room")
  })
)
