/** All resources as a tree of projects and environments, filtered by what the address says. */
import { useMemo } from "react"
import { kindInWords } from "#schemas/kind.ts"
import { useCaller } from "../caller.ts"
import { type Resource, useLive } from "../live/resources.ts"
import { standingOf, whyOf } from "../live/standing.ts"
import { inputClass } from "../parts/field.tsx"
import { Link } from "../parts/link.tsx"
import { State } from "../parts/mark.tsx"
import { Code, Empty, Head, Panel } from "../parts/panel.tsx"
import { Loading } from "../parts/problem.tsx"
import { placeOf, ResourceLink } from "../parts/resource-link.tsx"
import { Rows } from "../parts/rows.tsx"
import { Ago } from "../parts/time.tsx"
import { Waits } from "../parts/waits.tsx"
import { go, pathTo, usePlace, withQuery } from "../router.ts"
import { kindNames } from "../shell/kind-names.ts"
import { firstOf } from "./first-of.ts"
import { Why } from "./overview.tsx"

type Row = { readonly place: string; readonly count: number } | Resource

const rowHeight = 42

const matching = (resource: Resource, query: URLSearchParams): boolean => {
  const is = (name: string, value: string | null) => !query.get(name) || query.get(name) === value
  const words = (query.get("q") ?? "").toLowerCase().split(/\s+/)
  const text = `${resource.address} ${kindInWords(resource.kind)}`.toLowerCase()
  return (
    is("project", resource.project) &&
    is("environment", resource.environment) &&
    is("kind", resource.kind) &&
    (query.get("show") !== "not-ready" || standingOf(resource) !== "ready") &&
    words.every((word) => text.includes(word))
  )
}

/** Each place once, before what lies in it. */
const rowsOf = (resources: ReadonlyArray<Resource>): ReadonlyArray<Row> => {
  const places = Map.groupBy(resources, placeOf)
  const sorted = [...places].sort(([a], [b]) => (a < b ? -1 : 1))
  return sorted.flatMap(([place, within]) => [
    { place: place === "" ? "Organization" : place, count: within.length },
    ...within
  ])
}

export const ResourceTree = () => {
  const { org } = useCaller()
  const { query } = usePlace()
  const { all, complete } = useLive()
  const found = useMemo(() => all.filter((resource) => matching(resource, query)), [all, query])
  const rows = useMemo(() => rowsOf(found), [found])
  const kind = query.get("kind") ?? ""
  const set = (name: string, value: string) =>
    go(withQuery(pathTo(org.slug, "resources"), { ...Object.fromEntries(query), [name]: value }), {
      replace: true
    })
  const choices = (of: (resource: Resource) => string | null) =>
    [...new Set(all.flatMap((resource) => of(resource) ?? []))].sort()
  return (
    <>
      <Head
        title={kindNames.find(([name]) => name === kind)?.[1] ?? "Resources"}
        beside={
          <span className="text-faint tabular-nums">
            {found.length === all.length ? all.length : `${found.length} of ${all.length}`}
          </span>
        }
      />
      <div className="mb-3 flex flex-wrap gap-2">
        <input
          type="search"
          aria-label="Filter by name"
          placeholder="Filter by name"
          value={query.get("q") ?? ""}
          onChange={(event) => set("q", event.target.value)}
          className={`${inputClass} max-w-64`}
        />
        <Choice
          label="Project"
          value={query.get("project")}
          of={choices(({ project }) => project)}
          set={(value) => set("project", value)}
        />
        <Choice
          label="Environment"
          value={query.get("environment")}
          of={choices(({ environment }) => environment)}
          set={(value) => set("environment", value)}
        />
        <Choice
          label="Kind"
          value={kind}
          of={choices((resource) => resource.kind)}
          set={(value) => set("kind", value)}
        />
        <label className="flex items-center gap-2">
          <input
            type="checkbox"
            className="accent-accent"
            checked={query.get("show") === "not-ready"}
            onChange={(event) => set("show", event.target.checked ? "not-ready" : "")}
          />
          Not ready only
        </label>
      </div>
      <Panel>
        {rows.length > 0 ? (
          <Rows
            of={rows}
            height={rowHeight}
            keyOf={(row) => ("uid" in row ? row.uid : row.place)}
            label="Resources"
          >
            {(row) => ("uid" in row ? <Line resource={row} /> : <Place {...row} />)}
          </Rows>
        ) : !complete ? (
          <Loading what="resources" />
        ) : (
          <Empty>
            {all.length > 0 && kind === "" ? "Nothing matches the filter." : <FirstOf kind={kind} />}
          </Empty>
        )}
      </Panel>
    </>
  )
}

const FirstOf = ({ kind }: { readonly kind: string }) => {
  const { org } = useCaller()
  const first = firstOf[kind]
  return (
    <>
      <p>There is none yet.</p>
      {first?.manifest !== undefined && (
        <>
          <p className="mt-2">In a manifest, below its project, this makes the first one:</p>
          <Code>{first.manifest}</Code>
        </>
      )}
      <p className="mt-3">
        {first?.manifest === undefined ? "This command makes the first one:" : "Or by a command:"}
      </p>
      <Code>{first?.command ?? "svc apply -f shop.yaml"}</Code>
      {first?.page !== undefined && (
        <p className="mt-3">
          <Link to={pathTo(org.slug, first.page)} className="text-accent underline">
            {first.page === "projects" ? "Or on the page of its project" : "Or on its page"}
          </Link>
        </p>
      )}
    </>
  )
}

const Choice = ({
  label,
  value,
  of,
  set
}: {
  readonly label: string
  readonly value: string | null
  readonly of: ReadonlyArray<string>
  readonly set: (value: string) => void
}) => (
  <select
    aria-label={label}
    value={value ?? ""}
    onChange={(event) => set(event.target.value)}
    className={`${inputClass} w-auto! max-w-44`}
  >
    <option value="">{label}: all</option>
    {of.map((one) => (
      <option key={one} value={one}>
        {one}
      </option>
    ))}
    {value !== null && value !== "" && !of.includes(value) && <option value={value}>{value}</option>}
  </select>
)

const Place = ({ place, count }: { readonly place: string; readonly count: number }) => (
  <div className="flex h-full items-end gap-2 border-t border-line px-3.5 pb-2 text-[13px] font-semibold text-soft">
    <span dir="auto" className="truncate">
      {place}
    </span>
    <span className="font-normal text-faint tabular-nums">{count}</span>
  </div>
)

const Line = ({ resource }: { readonly resource: Resource }) => {
  const why = whyOf(resource)
  return (
    <div className="grid h-full grid-cols-[minmax(0,1fr)_auto] items-center gap-x-4 border-t border-line pr-3.5 pl-7 md:grid-cols-[minmax(0,17rem)_8rem_minmax(0,1fr)_4.5rem]">
      <span className="truncate">
        <ResourceLink resource={resource} />
      </span>
      <State resource={resource} />
      <span className="truncate text-soft max-md:hidden" title={why?.message}>
        {resource.waitingOn === null ? <Why resource={resource} /> : <Waits resource={resource} />}
      </span>
      <span className="text-right text-soft max-md:hidden">
        {why !== undefined && <Ago at={why.lastTransitionAt} />}
      </span>
    </div>
  )
}
