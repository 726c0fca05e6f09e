/** What tabs and the worker that holds their stream say to each other. */

/** From a tab. */
export type Ask =
  /** Follow the organization. `lock` is the name of a lock that the tab holds for as long as it lives. */
  | { readonly type: "watch"; readonly url: string; readonly reader: string; readonly lock: string }
  /** Try to connect now, without waiting. */
  | { readonly type: "retry" }

export type Connection =
  | { readonly state: "connecting" }
  | { readonly state: "live" }
  /** What is shown may be old. It comes back by itself. */
  | { readonly state: "stale"; readonly since: number; readonly retryAt: number; readonly status: number }
  /** It does not come back: the session has ended (401), or the organization is not the caller's any more. */
  | { readonly state: "refused"; readonly status: number }

/** To a tab. Changes are as they came over the wire: the tab decodes them. */
export type Tell =
  | { readonly type: "reset" }
  | { readonly type: "changes"; readonly changes: ReadonlyArray<unknown> }
  /** Everything that there was at the beginning has been told. */
  | { readonly type: "complete" }
  | { readonly type: "connection"; readonly connection: Connection }
