/** Rows of one thing each, below heads, or on a phone beside them. Without rows it says how the first one comes to be. */
import type { ReactNode } from "react"
import { Empty } from "./panel.tsx"

export interface Column<A> {
  /** Empty heads are said to those who do not see the page by `says`. */
  readonly head: string
  readonly says?: string
  readonly cell: (row: A) => ReactNode
  readonly look?: keyof typeof looks
}

const looks = {
  /** Text that people wrote, in whatever script, as long as it likes. */
  written: "wrap-anywhere",
  soft: "text-soft wrap-anywhere",
  code: "font-mono text-[12.5px] wrap-anywhere",
  number: "text-right tabular-nums whitespace-nowrap",
  /** What can be done to the row. */
  actions: "w-px text-right align-middle whitespace-nowrap"
} as const

const onTheRight = new Set<string | undefined>(["number", "actions"])

export const Table = <A,>({
  of,
  keyOf,
  columns,
  empty,
  label
}: {
  readonly of: ReadonlyArray<A>
  readonly keyOf: (row: A) => string
  readonly columns: ReadonlyArray<Column<A>>
  readonly empty: ReactNode
  /** Its name for those who do not see the page, where no heading above it says so. */
  readonly label?: string
}) => {
  if (of.length === 0) return <Empty>{empty}</Empty>
  return (
    <table className="stacked w-full" aria-label={label}>
      <thead>
        <tr>
          {columns.map(({ head, says, look }) => (
            <th key={says ?? head} className={`relative ${onTheRight.has(look) ? "text-right!" : ""}`}>
              {head === "" ? <span className="sr-only">{says}</span> : head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {of.map((row) => (
          <tr key={keyOf(row)}>
            {columns.map(({ head, says, cell, look }) => (
              <td
                key={says ?? head}
                data-head={head}
                className={look === undefined ? undefined : looks[look]}
                dir={look === "written" || look === "soft" ? "auto" : undefined}
              >
                {cell(row)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  )
}
