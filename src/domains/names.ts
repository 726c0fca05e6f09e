/** Host names that are the platform's own, and how names are shown. */
import { domainToUnicode } from "node:url"
import * as Effect from "effect/Effect"
import { AppConfig } from "#src/config.ts"
import { settings as edgeSettings } from "#src/edge/settings.ts"
import { isAtOrBelow } from "./dns/points-here.ts"

/**
 * Why a name of the right form cannot be a custom domain of this platform; undefined: it can. Names at or below the apps
 * domain are addresses of environments, and those at or below the platform's own host would get its cookies.
 */
export const makeRefusal = Effect.gen(function* () {
  const { publicUrl, managedHost } = yield* AppConfig
  const { appsDomain } = yield* edgeSettings
  const own = [appsDomain, new URL(publicUrl).hostname, managedHost].map((name) => name.toLowerCase())
  return (hostname: string): string | undefined => {
    const platform = own.find((name) => isAtOrBelow(hostname, name))
    if (platform !== undefined) return `must not be at or below ${platform}, which is the platform's own`
    const readable = domainToUnicode(hostname)
    return readable === "" || readable.split(".").some((label) => label.startsWith("xn--"))
      ? "must be the ASCII form of a name: what follows xn-- stands for nothing"
      : undefined
  }
})

/** The name as people read it, where that is another form. */
export const unicodeOf = (hostname: string): string | undefined => {
  const unicode = domainToUnicode(hostname)
  return unicode === "" || unicode === hostname ? undefined : unicode
}
