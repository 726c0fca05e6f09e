/** The disk that containers take. */
import * as fs from "node:fs/promises"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Call } from "./calls.ts"
import { ContainerError } from "./error.ts"

const decode = Schema.decodeUnknownSync(Schema.Struct({ SizeRw: Schema.optionalKey(Schema.Finite) }))

export const makeStorage = (call: Call) => {
  let folder: string | undefined
  /** Asked once: to tell it, Podman looks at all that it consists of. */
  const folderOfEngine = Effect.suspend(() =>
    folder === undefined
      ? call("Asking where the engine keeps images", async (docker): Promise<string> => {
          const { DockerRootDir } = await docker.info()
          folder = String(DockerRootDir)
          return folder
        })
      : Effect.succeed(folder)
  )

  return {
    written: (name: string) =>
      call("Measuring the container", async (docker, abortSignal) => {
        const options = { size: true, abortSignal }
        const { SizeRw = 0 } = decode(await docker.getContainer(name).inspect(options))
        return SizeRw
      }),
    disk: Effect.flatMap(folderOfEngine, (folder) =>
      Effect.tryPromise({
        try: async () => {
          const { bsize, bavail, files, ffree } = await fs.statfs(folder)
          // Some file systems make room for files as they need it, and tell none.
          return { freeBytes: bavail * bsize, freeFiles: files === 0 ? Number.POSITIVE_INFINITY : ffree }
        },
        catch: (cause) =>
          new ContainerError({
            reason: "Failed",
            message: `What is left of the disk of ${folder} cannot be told`,
            cause
          })
      })
    )
  }
}
