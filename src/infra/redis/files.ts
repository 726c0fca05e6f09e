/** What lies in the folder of a managed cache server besides the files that it starts from. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { RedisServerError } from "./errors.ts"
import { appendOnlyManifest, appendOnlyName } from "./settings.ts"

export const exists = (target: string): Effect.Effect<boolean> =>
  Effect.promise(() =>
    fs.access(target).then(
      () => true,
      () => false
    )
  )

export const appendOnlyFile = Effect.fnUntraced(function* (dir: string) {
  const folder = path.join(dir, appendOnlyName)
  if (yield* exists(path.join(folder, appendOnlyManifest))) return "complete" as const
  return (yield* exists(folder)) ? ("partial" as const) : ("none" as const)
})

/** Certificates that were replaced, and those of a reconcile that ended before it could use them. */
export const removeCertificates = (dir: string, keep: ReadonlyArray<string | undefined>) =>
  Effect.tryPromise({
    try: async () => {
      for (const name of await fs.readdir(dir))
        if (/^tls-.*\.pem$/.test(name) && !keep.includes(name))
          await fs.rm(path.join(dir, name), { force: true })
    },
    catch: (cause) =>
      new RedisServerError({ reason: "Failed", message: `Cannot remove old certificates in ${dir}`, cause })
  })
