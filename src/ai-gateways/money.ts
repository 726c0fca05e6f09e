/**
 * What calls cost is counted in whole billionths of a US dollar, in which the price of a single token is a whole
 * number, and shown in dollars. The largest budget, a million dollars, is 1e15 of them, which a number holds exactly.
 */

const nano = 1_000_000_000

export const usdOf = (nanoUsd: number): number => nanoUsd / nano

export const nanoUsdOf = (usd: number): number => Math.round(usd * nano)

/** For sentences: two digits after the point, more where the amount is smaller than that. */
export const inWords = (nanoUsd: number): string =>
  `$${usdOf(nanoUsd)
    .toFixed(9)
    .replace(/0{1,7}$/, "")}`
