/** The kinds of forges, and what differs between them before anything is asked. */
import * as Schema from "effect/Schema"

export const connectionKinds = ["github_app", "github_token", "gitlab", "gitea", "forgejo"] as const
export const ConnectionKind = Schema.Literals(connectionKinds).annotate({ identifier: "GitConnectionKind" })
export type ConnectionKind = typeof ConnectionKind.Type

/** Where the forge is unless it is said; undefined: everybody has their own. */
export const defaultUrl = (kind: ConnectionKind): string | undefined => {
  switch (kind) {
    case "github_app":
    case "github_token":
      return "https://github.com"
    case "gitlab":
      return "https://gitlab.com"
    default:
      return undefined
  }
}

/** Base of the forge's API, without a slash at the end. */
export const apiUrl = (kind: ConnectionKind, url: string): string => {
  switch (kind) {
    case "github_app":
    case "github_token":
      return url === "https://github.com" ? "https://api.github.com" : `${url}/api/v3`
    case "gitlab":
      return `${url}/api/v4`
    default:
      return `${url}/api/v1`
  }
}

/** Who a token belongs to as git asks for it: each forge has a name that stands for "see the token". */
export const gitUsername = (kind: ConnectionKind): string => (kind === "gitlab" ? "oauth2" : "x-access-token")
