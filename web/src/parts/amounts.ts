/** Amounts as people read them. */

const unitsOfBytes = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const

const round = (value: number): string =>
  new Intl.NumberFormat(undefined, {
    maximumSignificantDigits: value >= 100 ? Math.trunc(Math.log10(value)) + 1 : 3
  }).format(value)

/** Such as `2.1 GiB`. */
export const bytes = (value: number): string => {
  const exponent = value < 1 ? 0 : Math.min(unitsOfBytes.length - 1, Math.floor(Math.log2(value) / 10))
  return `${round(value / 1024 ** exponent)} ${unitsOfBytes[exponent]}`
}

/** Such as `1,204` and `0.0312`. */
export const count = (value: number): string => (value === 0 ? "0" : round(value))

/** US dollars: cents, and more digits where there are no whole cents yet. */
export const dollars = (value: number): string =>
  value !== 0 && Math.abs(value) < 0.01 ? `${value.toPrecision(2)} USD` : `${value.toFixed(2)} USD`
