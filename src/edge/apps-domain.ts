/** Whether the domain of apps is far enough from the console's: what is below one name can set cookies for it. */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { AppConfig } from "#src/config.ts"
import { appsDomainFormFault, settings } from "./settings.ts"

class AppsDomainRefused extends Schema.TaggedError<AppsDomainRefused>()("AppsDomainRefused", {
  message: Schema.String
}) {}

const isAtOrBelow = (name: string, domain: string) => name === domain || name.endsWith(`.${domain}`)

/** Why apps may not be below `appsDomain`; undefined: they may. No cookie is for all of `localhost`. */
export const appsDomainFault = (appsDomain: string, publicUrl: string): string | undefined => {
  const console = new URL(publicUrl).hostname
  const form = appsDomainFormFault(appsDomain)
  if (form !== undefined) return form
  if (isAtOrBelow(console, appsDomain) || (console !== "localhost" && isAtOrBelow(appsDomain, console)))
    return `SVC_APPS_DOMAIN (${appsDomain}) and the host of SVC_PUBLIC_URL (${console}) must not be the same or below one another: apps could set cookies for the console`
  return undefined
}

/** Keeps a process from starting with such a domain. */
export const checkAppsDomain = Effect.gen(function* () {
  const { publicUrl } = yield* AppConfig
  const { appsDomain } = yield* settings
  const message = appsDomainFault(appsDomain, publicUrl)
  if (message !== undefined) return yield* new AppsDomainRefused({ message })
})
