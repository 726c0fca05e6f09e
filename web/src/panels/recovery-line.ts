/** The line of moments that a database can be put back to: where things are on it, and what of it can be picked. */

export interface Span {
  readonly from: number
  readonly to: number
}

/** A line shorter than this would make every point of it the same. */
const shortest = 60_000

/**
 * Spans in milliseconds. The last one goes on to `now` while the log is archived. `line` is what is drawn: from the first
 * moment to now.
 */
export const recoveryLine = (
  windows: ReadonlyArray<{ readonly from: string; readonly to: string }>,
  archiving: boolean,
  now: number
): { readonly line: Span; readonly spans: ReadonlyArray<Span> } => {
  const spans = windows
    .map(({ from, to }) => ({ from: Date.parse(from), to: Date.parse(to) }))
    .sort((a, b) => a.from - b.from)
    .map((span, index, all) =>
      archiving && index === all.length - 1 ? { ...span, to: Math.max(span.to, now) } : span
    )
  const from = Math.min(spans[0]?.from ?? now, now - shortest)
  return { line: { from, to: Math.max(now, ...spans.map(({ to }) => to)) }, spans }
}

/** Percent of the line's width. */
export const placeOn = ({ from, to }: Span, at: number): number =>
  Math.min(100, Math.max(0, ((at - from) / (to - from)) * 100))

export const isWithin = (spans: ReadonlyArray<Span>, at: number): boolean =>
  spans.some(({ from, to }) => at >= from && at <= to)
