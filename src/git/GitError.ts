/** Why a repository gave nothing, with a message for users. */
import * as Schema from "effect/Schema"

export const GitErrorCode = Schema.Literals([
  /** Of the URL, of the ref or of the commit: as it is written it names nothing that is asked for. */
  "invalid",
  /** Requests do not go to where the URL leads. */
  "address_refused",
  /** Nobody answers there, or not as a repository does; it may later. */
  "unreachable",
  /** The server wants a credential, or another one. */
  "unauthorized",
  "repository_not_found",
  /** There is no such branch, tag or commit. */
  "ref_not_found",
  "too_large",
  "timed_out",
  /** It needs something that is not done here. */
  "unsupported",
  /** There is no git on this machine. */
  "unavailable",
  "failed"
])
export type GitErrorCode = typeof GitErrorCode.Type

export class GitError extends Schema.TaggedError<GitError>()("GitError", {
  code: GitErrorCode,
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

/** Whether the same may work a while later. */
export const mayPass = ({ code }: GitError): boolean =>
  code === "unreachable" || code === "timed_out" || code === "failed"
