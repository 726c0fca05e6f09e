/** How often destinations are tried out. Tests shorten these. */
import * as Context from "effect/Context"

export interface DestinationOptions {
  /** Milliseconds between looks at one that works; the engine adds jitter. */
  readonly lookMs: number
  /** Milliseconds for which a test that went well is believed. */
  readonly goodMs: number
  /** Milliseconds for which one that did not is. */
  readonly badMs: number
  /** Milliseconds between looks at one that does not work. */
  readonly againMs: number
  /** Milliseconds after which an upload that was not finished is given up: nobody is at it any more. */
  readonly leftoversAfterMs: number
}

export const DestinationOptions = Context.Reference<DestinationOptions>("svc/backups/DestinationOptions", {
  defaultValue: () => ({
    lookMs: 30 * 60_000,
    goodMs: 20 * 60_000,
    badMs: 30_000,
    againMs: 120_000,
    leftoversAfterMs: 86_400_000
  })
})
