/** What users write of repositories: addresses, refs, commits. */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { GitError } from "./GitError.ts"

/** Basic authentication, as forges take tokens: most look at the token alone. */
export interface GitCredential {
  readonly username: string
  readonly token: Redacted.Redacted
}

export interface Repository {
  /** Organization whose turn it takes. */
  readonly orgId: string
  /** https, without a credential in it. */
  readonly url: string
  readonly credential?: GitCredential | undefined
}

/** A commit, and what belongs to it. */
export interface WantedCommit extends Repository {
  readonly commit: string
  /**
   * Address below which submodules are given the credential as well; absent: none is. Whoever wrote the commit names its
   * submodules, and gets to see their files.
   */
  readonly credentialBelow?: string | undefined
}

const invalid = (message: string) => new GitError({ code: "invalid", message })

/** As much of an address as belongs in a message, and no password in it. */
export const shownUrl = (text: string): string => text.replace(/\/\/[^/?#]*@/, "//").slice(0, 200)

/** The address in one form, if it is one that is fetched from. Whether requests go to its host is judged apart. */
export const parseUrl = Effect.fnUntraced(function* (text: string) {
  const refuse = (why: string) => invalid(`${shownUrl(text)} ${why}`)
  if (text.length > 2_000) return yield* refuse("is too long")
  // Git reads it with a parser of its own: nothing is in it that two parsers may read differently.
  if (!/^https:\/\/[A-Za-z0-9.:[\]-]+\/[A-Za-z0-9._~%+/-]*$/.test(text) || !URL.canParse(text))
    return yield* refuse("is not the https URL of a repository")
  const url = new URL(text)
  if (url.pathname === "/") return yield* refuse("names no repository")
  return url
})

const commitId = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/
export const isCommit = (text: string): boolean => commitId.test(text)

/** git-check-ref-format(1), as far as it keeps out what would be a pattern, an option or an expression. */
const refName = /^(?![-/.])(?!.*(?:\.\.|\/\/|\/\.|@\{|\.lock(?:\/|$)))[^\p{Cc}\s~^:?*[\\]{1,255}(?<![/.])$/u

/** The names that a ref may have at a server, those first that count first; a branch before a tag. */
export const namesOfRef = (ref: string): Effect.Effect<ReadonlyArray<string>, GitError> => {
  if (!refName.test(ref) || ref === "@")
    return Effect.fail(invalid(`${JSON.stringify(ref.slice(0, 100))} is not the name of a branch or a tag`))
  const names = ref === "HEAD" || ref.startsWith("refs/") ? [ref] : [`refs/heads/${ref}`, `refs/tags/${ref}`]
  // What an annotated tag points to comes before the tag itself.
  return Effect.succeed(names.flatMap((name) => [`${name}^{}`, name]))
}

/** The configuration that sends the credential; for the environment of git, never for its arguments. */
export const credentialConfig = (
  credential: GitCredential | undefined
): ReadonlyArray<readonly [key: string, value: string]> => {
  if (credential === undefined) return []
  const pair = `${credential.username}:${Redacted.value(credential.token)}`
  return [["http.extraHeader", `Authorization: Basic ${Buffer.from(pair).toString("base64")}`]]
}

/** Where a submodule is: what `.gitmodules` says may be relative to its parent's address (gitmodules(5)). */
export const submoduleUrl = (parent: URL, written: string): string => {
  if (!written.startsWith("./") && !written.startsWith("../")) return written
  const base = parent.href.replace(/\/+$/, "")
  return new URL(written, `${base}/`).href
}

/**
 * Forges read paths without regard to case, and unfold what is escaped: an address that they might read otherwise is below
 * nothing.
 */
export const isBelow = (url: URL, base: string | undefined): boolean =>
  base !== undefined &&
  !/%|\/\//.test(url.pathname) &&
  url.href.toLowerCase().startsWith(`${base.replace(/\/+$/, "").toLowerCase()}/`)
