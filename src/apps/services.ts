/** What the environment of a container provides it with, built once for the process. */
import * as Layer from "effect/Layer"
import { AppServiceTokens } from "#src/projects/AppServiceTokens.ts"
import { EnvironmentServices } from "./EnvironmentServices.ts"

export const layer = EnvironmentServices.layer.pipe(Layer.provide(AppServiceTokens.layer))
