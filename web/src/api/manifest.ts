/** Operations on the manifest. Its definition is every kind's, so it is loaded with the page that needs it. */
import * as Effect from "effect/Effect"
import * as HttpApi from "effect/http-api/HttpApi"
import { Manifest } from "#src/manifest/api.ts"
import { clientOf } from "./call.ts"

export const { manifest } = Effect.runSync(clientOf(HttpApi.make("svc").add(Manifest)))
