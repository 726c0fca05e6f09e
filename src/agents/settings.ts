import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import { atLeastOne } from "#src/settings.ts"

export const settings = Config.all({
  /** Schemes of editors that open an address of their own; besides https, and http on this machine. */
  redirectSchemes: Config.String("SVC_AGENT_REDIRECT_SCHEMES").pipe(
    Config.withDefault("cursor,vscode,vscode-insiders,windsurf"),
    Config.map((text) =>
      text === "none" ? [] : text.split(",").map((scheme) => scheme.trim().toLowerCase())
    ),
    Config.flatMap((schemes) => {
      const wrong = schemes.find((scheme) => !/^[a-z][a-z0-9+.-]{1,40}$/.test(scheme) || special.has(scheme))
      return wrong === undefined
        ? Config.succeed<ReadonlySet<string>>(new Set(schemes))
        : Config.fail(
            new ConfigProvider.SourceError({
              message: `SVC_AGENT_REDIRECT_SCHEMES must be schemes of editors such as cursor,vscode, or none: "${wrong}" is no such scheme`
            })
          )
    })
  ),
  /** Requests a minute from one network to the endpoints of the authorization server. */
  rateLimit: atLeastOne("SVC_AGENT_RATE_LIMIT", 120)
})

/** What a browser runs, reads or sends in the clear. */
const special: ReadonlySet<string> = new Set([
  "http",
  "https",
  "javascript",
  "data",
  "blob",
  "file",
  "about",
  "ws",
  "wss",
  "ftp",
  "mailto"
])
