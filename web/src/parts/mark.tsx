/** State as colour and shape: round ready, diamond waiting, square failed, ring paused. */
import type { Resource } from "../live/resources.ts"
import { type Standing, standingOf, wordOf } from "../live/standing.ts"

const shapes: Readonly<Record<Standing, string>> = {
  ready: "rounded-full bg-ok",
  waiting: "rounded-xs rotate-45 bg-wait",
  drifted: "rounded-xs rotate-45 border-2 border-wait",
  stalled: "rounded-xs border-2 border-bad",
  failed: "rounded-xs bg-bad",
  paused: "rounded-full border-2 border-idle"
}

export const Mark = ({ standing }: { readonly standing: Standing }) => (
  <span aria-hidden="true" className={`inline-block size-2 flex-none ${shapes[standing]}`} />
)

export const State = ({ resource }: { readonly resource: Resource }) => (
  <span className="inline-flex items-center gap-2 font-medium whitespace-nowrap">
    <Mark standing={standingOf(resource)} />
    {wordOf(resource)}
  </span>
)
