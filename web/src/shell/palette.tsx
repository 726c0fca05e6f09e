/** Everything that can be gone to, by typing a part of its name: pages, resources, organizations. */
import { useEffect, useMemo, useRef, useState } from "react"
import { kindInWords } from "#schemas/kind.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { go, pathTo } from "../router.ts"
import { kindSections, mainSections } from "./sections.ts"

interface Target {
  readonly name: string
  readonly about: string
  readonly path: string
}

const mostShown = 12

const useTargets = (): ReadonlyArray<Target> => {
  const { org, organizations } = useCaller()
  const { all } = useLive()
  return useMemo(
    () => [
      ...[...mainSections(org.slug), ...kindSections(org.slug)].map(({ name, path }) => ({
        name,
        path,
        about: "page"
      })),
      ...organizations
        .filter(({ slug }) => slug !== org.slug)
        .map(({ slug, name }) => ({ name, path: pathTo(slug), about: "organization" })),
      ...all.map(({ uid, name, address, kind }) => ({
        name,
        path: pathTo(org.slug, "resources", uid),
        about: `${kindInWords(kind)}, ${address}`
      }))
    ],
    [org, organizations, all]
  )
}

/** All words have to be there; what begins with them comes first. */
const search = (targets: ReadonlyArray<Target>, text: string): ReadonlyArray<Target> => {
  const words = text
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "")
  const first = words[0] ?? ""
  return targets
    .filter(({ name, about }) => words.every((word) => `${name} ${about}`.toLowerCase().includes(word)))
    .sort(
      (a, b) =>
        Number(b.name.toLowerCase().startsWith(first)) - Number(a.name.toLowerCase().startsWith(first))
    )
    .slice(0, mostShown)
}

export const Palette = ({
  open,
  setOpen
}: {
  readonly open: boolean
  readonly setOpen: (open: boolean) => void
}) => {
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault()
        setOpen(true)
      }
    }
    addEventListener("keydown", key)
    return () => removeEventListener("keydown", key)
  }, [setOpen])
  const box = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    if (open) box.current?.showModal()
    else box.current?.close()
  }, [open])
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the Escape key closes it by itself.
    <dialog
      ref={box}
      aria-label="Search"
      onClose={() => setOpen(false)}
      onClick={({ target, currentTarget }) => target === currentTarget && setOpen(false)}
      className="mx-auto mt-[12vh] w-[min(36rem,calc(100vw-2rem))] overflow-hidden rounded-lg border border-line bg-panel text-ink outline-none backdrop:bg-black/40"
    >
      {open && <Search close={() => setOpen(false)} />}
    </dialog>
  )
}

const Search = ({ close }: { readonly close: () => void }) => {
  const targets = useTargets()
  const [text, setText] = useState("")
  const [at, setAt] = useState(0)
  const list = useRef<HTMLDivElement>(null)
  const found = search(targets, text)
  const chosen = Math.min(at, found.length - 1)
  const open = (target: Target | undefined) => {
    if (target === undefined) return
    close()
    go(target.path)
  }
  useEffect(() => {
    list.current?.children[chosen]?.scrollIntoView({ block: "nearest" })
  }, [chosen])
  return (
    <>
      <input
        // biome-ignore lint/a11y/noAutofocus: it was opened to type in.
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls="found"
        aria-activedescendant={found.length > 0 ? `found-${chosen}` : undefined}
        aria-label="Search pages and resources"
        placeholder="Search pages and resources"
        value={text}
        onChange={(event) => {
          setText(event.target.value)
          setAt(0)
        }}
        onKeyDown={(event) => {
          const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0
          if (step !== 0) {
            event.preventDefault()
            setAt((chosen + step + found.length) % Math.max(1, found.length))
          }
          if (event.key === "Enter") open(found[chosen])
        }}
        className="w-full border-b border-line bg-transparent px-4 py-3 text-base text-ink outline-none placeholder:text-faint"
      />
      <div
        id="found"
        ref={list}
        role="listbox"
        aria-label="Found"
        className="max-h-[50vh] overflow-y-auto p-1.5"
      >
        {found.map((target, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: keys go to the field above.
          <div
            key={target.path}
            id={`found-${index}`}
            role="option"
            aria-selected={index === chosen}
            tabIndex={-1}
            onClick={() => open(target)}
            className="flex cursor-pointer items-baseline justify-between gap-4 rounded-md px-2.5 py-1.5 aria-selected:bg-accent/15"
          >
            <span className="truncate" dir="auto">
              {target.name}
            </span>
            <span className="truncate text-xs text-soft">{target.about}</span>
          </div>
        ))}
      </div>
      {found.length === 0 && <p className="px-4 pb-4 text-soft">Nothing has that name.</p>}
    </>
  )
}
