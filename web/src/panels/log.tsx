/** A log: followed while it is written, searched, in the colours it was printed in. */
import { useEffect, useRef, useState } from "react"
import { inputClass } from "../parts/field.tsx"
import { piecesOf } from "./ansi.ts"
import { type Entry, useLog } from "./use-log.ts"

/** Characters of one entry that are drawn. */
const longest = 10_000

export const LogView = ({ path }: { readonly path: string }) => {
  const { entries, cut, state } = useLog(path)
  const [search, setSearch] = useState("")
  const box = useRef<HTMLDivElement>(null)
  const atEnd = useRef(true)
  const shown =
    search === "" ? entries : entries.filter(({ text }) => text.toLowerCase().includes(search.toLowerCase()))

  useEffect(() => {
    if (atEnd.current) box.current?.scrollTo({ top: box.current.scrollHeight })
  }, [shown.length])

  return (
    <>
      <div className="mb-2 flex flex-wrap items-center gap-3">
        <input
          type="search"
          aria-label="Search the log"
          placeholder="Search the log"
          value={search}
          onChange={(event) => setSearch(event.target.value)}
          className={`${inputClass} max-w-64`}
        />
        <span role="status" className="text-soft tabular-nums">
          {search === ""
            ? `${entries.length} ${entries.length === 1 ? "line" : "lines"}`
            : `${shown.length} of ${entries.length} lines`}
          {cut && ", older ones are left out here"}
          {state === "following"
            ? ", following"
            : state === "broken"
              ? ", interrupted: it is tried again"
              : state === "refused"
                ? ", not there any more, or not for you"
                : ""}
        </span>
      </div>
      <section
        ref={box}
        aria-label="Log"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls by keyboard.
        tabIndex={0}
        onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
          atEnd.current = scrollHeight - scrollTop - clientHeight < 24
        }}
        className="max-h-[28rem] overflow-auto rounded-lg border border-line bg-panel p-3 font-mono text-[12.5px] leading-5"
      >
        {shown.map((entry) => (
          <Line key={entry.id} entry={entry} />
        ))}
        {shown.length === 0 && (
          <p className="text-faint">
            {entries.length > 0 ? "No line has that." : "Nothing was printed yet."}
          </p>
        )}
      </section>
    </>
  )
}

const streams: Readonly<Record<Entry["stream"], string>> = {
  stdout: "",
  stderr: "text-wait",
  system: "text-faint"
}

const Line = ({ entry: { stream, at, text } }: { readonly entry: Entry }) => (
  <div className={`wrap-anywhere whitespace-pre-wrap ${streams[stream]}`} title={`${at}, ${stream}`}>
    {piecesOf(text.slice(0, longest).replace(/\r?\n$/, "")).map(({ text, look }, index) => (
      <span key={index} className={look}>
        {text}
      </span>
    ))}
    {text.length > longest && <span className="text-faint"> … {text.length - longest} more characters</span>}
  </div>
)
