import * as Config from "effect/Config"
import * as Schema from "effect/Schema"
import { atLeastOne } from "#src/settings.ts"

const UrlOfServer = Schema.String.check(
  Schema.makeFilter((text: string) =>
    URL.canParse(text) && /^https?:$/.test(new URL(text).protocol) && new URL(text).pathname === "/"
      ? undefined
      : "must be an http(s) URL without a path"
  )
)

export const settings = Config.all({
  /** Where Stripe's API is asked instead of at its own host: for tests. */
  stripeUrl: Config.schema(UrlOfServer, "SVC_STRIPE_URL").pipe(Config.withDefault(undefined)),
  /** Seconds between two comparisons of everything with Stripe's lists. */
  compareSeconds: atLeastOne("SVC_PAYMENTS_COMPARE_SECONDS", 3_600)
})
