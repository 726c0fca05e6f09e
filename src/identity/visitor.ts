/** Who sends a request, as far as anybody can tell before somebody has proved who they are. */

/** Where a request came from, as far as anybody can tell. */
export interface Visitor {
  readonly address: string | null
  readonly userAgent: string | null
  readonly requestId: string
}

/** How a request came in: from where, and with which session's token. */
export interface Entry {
  readonly visitor: Visitor
  /** Digest of the session cookie that the browser sent. */
  readonly before: Buffer | null
}
