/** The settings of a control plane on this machine, as the environment of the command gives them. */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AppConfig } from "#src/config.ts"
import { defaultDataDir } from "#src/data-dir.ts"
import { Invocation } from "./invocation.ts"

export const localConfig = Layer.unwrap(
  Effect.map(Invocation, ({ env, cwd }) => {
    const dataDir = env["SVC_DATA_DIR"] ?? ""
    return AppConfig.layerFrom({
      ...env,
      SVC_DATA_DIR: dataDir === "" ? defaultDataDir(cwd) : path.resolve(cwd, dataDir)
    })
  })
)
