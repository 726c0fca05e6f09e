/** Money is counted in whole millionths of a US dollar, and shown in dollars. */

const micro = 1_000_000

export const usdOf = (microUsd: number): number => microUsd / micro

export const microUsdOf = (usd: number): number => Math.round(usd * micro)
