/** The destinations of organizations, as those who copy backups there see them. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type Place, PlaceError } from "../repository/Place.ts"

export class Remotes extends Context.Service<
  Remotes,
  {
    /** The destination as it is configured now. */
    readonly current: (
      orgId: string,
      destinationId: string
    ) => Effect.Effect<{ readonly place: Place; readonly version: number }, PlaceError>
    /** As it was when something was put there. */
    readonly at: (orgId: string, destinationId: string, version: number) => Effect.Effect<Place, PlaceError>
  }
>()("svc/backups/Remotes") {
  /** Of a control plane that knows no destinations. */
  static readonly layerNone = Layer.succeed(Remotes, {
    current: () => Effect.fail(unknown),
    at: () => Effect.fail(unknown)
  })
}

const unknown = new PlaceError({ reason: "not_found", message: "There is no such backup destination" })
