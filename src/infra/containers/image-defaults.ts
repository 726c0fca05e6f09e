/** What an image says of the containers that are made of it. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Act, Call } from "./calls.ts"

const Texts = Schema.optionalKey(Schema.NullOr(Schema.Array(Schema.String)))
const Inspected = Schema.Struct({
  Config: Schema.Struct({
    Env: Texts,
    Entrypoint: Texts,
    Cmd: Texts,
    User: Schema.optionalKey(Schema.String),
    WorkingDir: Schema.optionalKey(Schema.String)
  })
})
const decode = Schema.decodeUnknownSync(Inspected)

export interface ImageDefaults {
  readonly env: Readonly<Record<string, string>>
  readonly user: string
  readonly workdir: string
  readonly entrypoint: ReadonlyArray<string>
  readonly cmd: ReadonlyArray<string>
}

export const defaultsOf = (call: Call, id: string): Act<ImageDefaults> =>
  Effect.map(
    call("Looking at an image", (docker) => docker.getImage(id).inspect().then(decode)),
    ({ Config: { Env, Entrypoint, Cmd, User, WorkingDir } }) => ({
      env: Object.fromEntries(
        (Env ?? []).map((pair) => {
          const at = pair.indexOf("=")
          return [pair.slice(0, at), pair.slice(at + 1)]
        })
      ),
      user: User ?? "",
      workdir: WorkingDir ?? "",
      entrypoint: Entrypoint ?? [],
      cmd: Cmd ?? []
    })
  )
