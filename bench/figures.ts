/** One measured figure and what it is held against. */
export interface Figure {
  readonly name: string
  readonly value: number
  readonly unit: string
  readonly aim?: string
  readonly note?: string
}

export const print = (title: string, figures: ReadonlyArray<Figure>): void => {
  console.log(`\n${title}`)
  for (const { name, value, unit, aim, note } of figures) {
    const shown = value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3)
    console.log(
      `  ${name.padEnd(46)} ${`${shown} ${unit}`.padStart(16)}${aim ? `   aim ${aim}` : ""}${note ? `   (${note})` : ""}`
    )
  }
}

export const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0

/** What lies between the rounds of a figure. */
export const spread = (values: ReadonlyArray<number>): string =>
  `rounds ${Math.min(...values).toFixed(2)} to ${Math.max(...values).toFixed(2)}`
