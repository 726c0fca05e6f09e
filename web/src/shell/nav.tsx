/** The organization and its pages, at the side; on a narrow screen behind a button. */
import { useEffect, useState } from "react"
import { apiUrl } from "../api/place.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { standingOf } from "../live/standing.ts"
import { Button } from "../parts/button.tsx"
import { inputClass } from "../parts/field.tsx"
import { Link } from "../parts/link.tsx"
import { go, pathTo, usePlace } from "../router.ts"
import { kindSections, mainSections, type Section } from "./sections.ts"

export const Nav = ({ palette }: { readonly palette: () => void }) => {
  const place = usePlace()
  const [open, setOpen] = useState(false)
  useEffect(() => setOpen(false), [place])
  return (
    <>
      <div className="flex items-center justify-between gap-2 border-b border-line px-4 py-2 md:hidden">
        <Button aria-expanded={open} onClick={() => setOpen(!open)}>
          Menu
        </Button>
        <Button onClick={palette}>Search</Button>
      </div>
      <nav
        aria-label="Organization"
        className={`flex-col gap-0.5 border-line px-3 py-4 max-md:border-b md:sticky md:top-0 md:flex md:h-screen md:overflow-y-auto md:border-r ${open ? "flex" : "max-md:hidden"}`}
      >
        <Organizations />
        <button
          type="button"
          onClick={palette}
          className="my-2 flex items-center justify-between rounded-md border border-line bg-panel px-2.5 py-1 text-faint max-md:hidden"
        >
          Search <kbd className="rounded-sm border border-line px-1 font-mono text-[11px]">Ctrl K</kbd>
        </button>
        <Sections />
        <div className="mt-auto flex flex-col gap-0.5 pt-4">
          <a href={`${apiUrl}/account`} className="rounded-md px-2 py-1 text-soft hover:text-ink">
            Account
          </a>
          <a href={`${apiUrl}/docs`} className="rounded-md px-2 py-1 text-soft hover:text-ink">
            API
          </a>
        </div>
      </nav>
    </>
  )
}

const Organizations = () => {
  const { org, organizations } = useCaller()
  if (organizations.length < 2)
    return (
      <span className="flex-none truncate px-2 py-1 font-semibold" dir="auto">
        {org.name}
      </span>
    )
  return (
    <select
      aria-label="Organization"
      value={org.slug}
      onChange={(event) => go(pathTo(event.target.value))}
      className={`${inputClass} font-semibold`}
    >
      {organizations.map(({ slug, name }) => (
        <option key={slug} value={slug}>
          {name}
        </option>
      ))}
    </select>
  )
}

const Sections = () => {
  const { org } = useCaller()
  const { all } = useLive()
  const counts = Map.groupBy(all, ({ kind }) => kind)
  const wrong = all.filter((resource) => standingOf(resource) !== "ready").length
  return (
    <>
      {mainSections(org.slug).map((section) => (
        <Item
          key={section.name}
          section={section}
          count={section.name === "Resources" ? all.length : section.name === "Overview" ? wrong : 0}
        />
      ))}
      <p className="px-2 pt-4 pb-1 text-[11px] font-semibold tracking-wider text-faint uppercase">Services</p>
      {kindSections(org.slug).map((section) => (
        <Item key={section.name} section={section} count={counts.get(section.kind ?? "")?.length ?? 0} />
      ))}
    </>
  )
}

const Item = ({ section, count }: { readonly section: Section; readonly count: number }) => {
  const { parts, query } = usePlace()
  const [path] = section.path.split("?")
  const here = path === pathTo(...parts) && (query.get("kind") ?? "") === (section.kind ?? "")
  return (
    <Link
      to={section.path}
      aria-current={here ? "page" : undefined}
      className="flex justify-between gap-2 rounded-md px-2 py-1 text-soft hover:text-ink aria-[current]:bg-accent/10 aria-[current]:font-medium aria-[current]:text-ink"
    >
      {section.name}
      {count > 0 && <span className="text-soft tabular-nums">{count}</span>}
    </Link>
  )
}
