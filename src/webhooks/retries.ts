/** When an event is sent again that did not arrive. */

/** Seconds before each try, counted from the one before it. */
const delays = [0, 5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400]
/** The share of a delay that is added to it by chance, so that what failed together does not come back together. */
const jitter = 0.1
const longestWait = 86_400

/**
 * An endpoint that took nothing for so long is disabled by an event that failed so many times itself, which takes hours.
 * Where events are rare, the days before this one tell nothing of how the endpoint is now.
 */
export const patienceSeconds = 5 * 86_400
export const patienceTries = 5

/** Seconds after `failed` failures until the next try; undefined: there is none. */
export const delayAfter = (
  failed: number,
  random: number,
  retryAfter: number | undefined
): number | undefined => {
  const delay = delays[failed]
  if (delay === undefined) return undefined
  // Who asks to be left alone for a while is; not for so long that the event is forgotten.
  return Math.max(delay * (1 + random * jitter), Math.min(retryAfter ?? 0, longestWait))
}

/** `Retry-After` in seconds (RFC 9110, section 10.2.3). */
export const retryAfterSeconds = (value: string | undefined, now: number): number | undefined => {
  if (value === undefined) return undefined
  if (/^\d{1,9}$/.test(value)) return Number(value)
  const date = Date.parse(value)
  return Number.isNaN(date) ? undefined : Math.max(0, (date - now) / 1000)
}
