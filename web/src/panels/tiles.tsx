import type { ReactNode } from "react"

export const Tiles = ({ children }: { readonly children: ReactNode }) => (
  <div className="grid grid-cols-2 gap-3.5 lg:grid-cols-4">{children}</div>
)

export const Tile = ({
  value,
  says,
  bad = false
}: {
  readonly value: ReactNode
  readonly says: string
  readonly bad?: boolean
}) => (
  <div className="rounded-lg border border-line bg-panel px-3.5 py-3">
    <div className={`text-xl font-semibold tracking-tight tabular-nums ${bad ? "text-bad" : ""}`}>
      {value}
    </div>
    <div className="text-[13px] text-soft">{says}</div>
  </div>
)
