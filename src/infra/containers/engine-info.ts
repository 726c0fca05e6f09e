/** What the engine says of itself: asked once, since Podman looks at all that it consists of to tell it. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Act, Call } from "./calls.ts"

const Info = Schema.Struct({
  /** Only Podman has one. */
  BuildahVersion: Schema.optionalKey(Schema.String),
  Rootless: Schema.optionalKey(Schema.Boolean),
  SecurityOptions: Schema.optionalKey(Schema.NullOr(Schema.Array(Schema.String))),
  /** Who makes control groups: `systemd`, or the engine itself (`cgroupfs`). */
  CgroupDriver: Schema.optionalKey(Schema.String)
})

export interface EngineInfo {
  readonly isPodman: boolean
  readonly rootless: boolean
  /** It gives every container a user namespace by itself. */
  readonly mapsUsers: boolean
  readonly cgroupDriver: string
}

const read = (raw: unknown): EngineInfo => {
  const { BuildahVersion, Rootless, SecurityOptions, CgroupDriver = "" } = Schema.decodeUnknownSync(Info)(raw)
  const has = (name: string) =>
    (SecurityOptions ?? []).some((option) => new RegExp(`^name=${name}\\b`).test(option))
  const rootless = Rootless === true || has("rootless")
  return {
    isPodman: BuildahVersion !== undefined,
    rootless,
    mapsUsers: rootless || has("userns"),
    cgroupDriver: CgroupDriver
  }
}

export const makeEngineInfo = (call: Call): Act<EngineInfo> => {
  let known: EngineInfo | undefined
  const ask = call(
    "Asking the container engine what it is",
    (docker) => docker.info().then(read),
    "20 seconds"
  )
  return Effect.suspend(() =>
    known === undefined
      ? Effect.tap(ask, (found) =>
          Effect.sync(() => {
            known = found
          })
        )
      : Effect.succeed(known)
  )
}
