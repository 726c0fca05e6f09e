/** The pages' routes. Each does one step of a flow: it takes what was posted, asks `Identity`, and shows or redirects. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { identityPaths } from "#src/api/page-paths.ts"
import { AppConfig } from "#src/config.ts"
import { isSecure } from "../entry.ts"
import { accountPages } from "./account.ts"
import { pageRoutes } from "./handling.ts"
import { oidcPages } from "./oidc.ts"
import { signInPages } from "./sign-in.ts"

export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const { publicUrl } = yield* AppConfig
    const secure = isSecure(publicUrl)
    return pageRoutes(identityPaths, {
      ...(yield* signInPages(secure)),
      ...(yield* accountPages(secure)),
      ...(yield* oidcPages(secure))
    })
  })
)
