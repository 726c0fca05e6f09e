/** What `svc doctor` and `svc up` say about limits of managed servers: whether a control plane begun as they were could set them. */
import * as Effect from "effect/Effect"
import { AppConfig } from "#src/config.ts"
import { placeGroups } from "#src/infra/host/control-group-place.ts"
import { failure } from "./failure.ts"
import { localConfig } from "./local-config.ts"

export const limitsOfServers = Effect.gen(function* () {
  const { serverLimits } = yield* AppConfig
  const required = serverLimits === "required"
  if (serverLimits === "off") return { required, why: "SVC_SERVER_LIMITS is off", hint: "set it to auto" }
  const placed = yield* Effect.promise(() => placeGroups("svc-doctor", undefined, "look"))
  if (!placed.usable) return { required, why: placed.why, hint: placed.hint }
  const { version, folders } = placed.place
  return { required, found: `cgroup v${version}: ${[...folders.keys()].join(", ")}` }
}).pipe(
  Effect.provide(localConfig),
  Effect.mapError(({ message }) => failure(message))
)
