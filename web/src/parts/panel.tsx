import { type ReactNode, useEffect, useRef, useState } from "react"

/** What is wider than the screen scrolls by itself, by keyboard too. */
export const Panel = ({
  children,
  className = ""
}: {
  readonly children: ReactNode
  readonly className?: string
}) => {
  const box = useRef<HTMLDivElement>(null)
  const [scrolls, setScrolls] = useState(false)
  useEffect(() => {
    const { current } = box
    if (current === null) return
    const watching = new ResizeObserver(() => setScrolls(current.scrollWidth > current.clientWidth))
    watching.observe(current)
    for (const child of current.children) watching.observe(child)
    return () => watching.disconnect()
  }, [])
  return (
    <div
      ref={box}
      tabIndex={scrolls ? 0 : undefined}
      className={`overflow-x-auto rounded-lg border border-line bg-panel ${className}`}
    >
      {children}
    </div>
  )
}

/** A page's head: where it is, what it is, and what can be done. */
export const Head = ({
  title,
  crumbs,
  beside,
  children
}: {
  readonly title: string
  readonly crumbs?: ReactNode
  readonly beside?: ReactNode
  readonly children?: ReactNode
}) => (
  <header className="mb-4">
    {crumbs !== undefined && <p className="mb-1 text-[13px] text-faint">{crumbs}</p>}
    <div className="flex flex-wrap items-center justify-between gap-3">
      <div className="flex min-w-0 flex-wrap items-baseline gap-x-3 gap-y-1">
        <h1 className="min-w-0 wrap-anywhere" dir="auto">
          {title}
        </h1>
        {beside}
      </div>
      <div className="flex flex-wrap items-center gap-2">{children}</div>
    </div>
  </header>
)

/** Nothing there yet, and how the first one is made. */
export const Empty = ({ children }: { readonly children: ReactNode }) => (
  <div className="px-3.5 py-6 text-soft">{children}</div>
)

export const Code = ({ children }: { readonly children: string }) => (
  <pre className="mt-2 overflow-x-auto rounded-md bg-bg p-3 font-mono text-[12.5px] text-ink">{children}</pre>
)
