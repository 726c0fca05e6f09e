/** What git's complaints mean to users. What a server said is not repeated to them: it may say anything. */
import { GitError, type GitErrorCode } from "./GitError.ts"
import type { GitEnd } from "./run-git.ts"

/**
 * Git's own words, in the locale C. The first that fits counts. A program that indexes a pack and is ended for the size
 * of its file leaves its parent alone with what it has printed so far.
 */
const meanings: ReadonlyArray<readonly [RegExp, GitErrorCode, string]> = [
  [
    /signal 25|^(?:warning: filtering not recognized by server, ignoring\s+)?fatal: fetch-pack: invalid index-pack output\s*(?:fatal: could not fetch \w+ from promisor remote\s*)?$|file size limit exceeded|EFBIG|File too large/i,
    "too_large",
    "is larger than what is fetched here"
  ],
  [
    /out of memory|cannot allocate memory|mmap failed/i,
    "too_large",
    "holds an object that takes more memory than it may"
  ],
  [
    /returned error: 30\d|unable to update url base from redirection/,
    "unsupported",
    "redirects to somewhere else; name the address that it redirects to"
  ],
  [
    /returned error: 40[13]|Authentication failed|could not read (Username|Password)|terminal prompts disabled/,
    "unauthorized",
    "wants a credential, or does not take the one that it was given"
  ],
  [
    /returned error: 404|repository '.*' not found|returned error: 410/,
    "repository_not_found",
    "does not exist, or is not shown without a credential"
  ],
  [
    /not our ref|couldn't find remote ref|unadvertised object|bad object|does not exist|no such ref/i,
    "ref_not_found",
    "has no such commit"
  ],
  [/SSL|certificate|TLS/i, "unreachable", "has no certificate that is trusted"],
  [/timed out|Operation too slow/i, "timed_out", "did not answer in time"],
  [
    /Could(n't| not) (resolve|connect)|Failed to connect|Connection refused|Connection reset|returned error: (429|5\d\d)|not valid: is this a git repository|Empty reply|early EOF|hung up|unexpected disconnect|gnutls_handshake/i,
    "unreachable",
    "does not answer as a repository does"
  ],
  [
    /fsck|index-pack failed|invalid object|bad pack|pack has|corrupt/i,
    "unsupported",
    "holds objects that are damaged or not allowed"
  ]
]

/** `what`: of which repository it is told, with its address. */
export const explained = (what: string, { code, signal, stderr }: GitEnd): GitError => {
  if (signal === "SIGXFSZ")
    return new GitError({ code: "too_large", message: `${what} is larger than what is fetched here` })
  if (signal === "SIGXCPU" || signal === "SIGKILL")
    return new GitError({ code: "timed_out", message: `${what} took more than it may` })
  const found = meanings.find(([pattern]) => pattern.test(stderr))
  return new GitError({
    code: found?.[1] ?? "failed",
    // For whoever operates this.
    ...(found === undefined ? { cause: new Error(stderr.slice(0, 2_000)) } : {}),
    message: `${what} ${found?.[2] ?? `could not be read (git ended with ${signal ?? `the exit code ${code}`})`}`
  })
}
