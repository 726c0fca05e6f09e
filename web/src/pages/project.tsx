/** A project: where it answers, what it costs, who may see it, how fast it is for visitors; and the list of them. */
import { type ComponentType, Suspense } from "react"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { standingOf } from "../live/standing.ts"
import { buttonClass } from "../parts/button.tsx"
import { lazily } from "../parts/lazily.ts"
import { Link } from "../parts/link.tsx"
import { State } from "../parts/mark.tsx"
import { Code, Head, Panel } from "../parts/panel.tsx"
import { Loading } from "../parts/problem.tsx"
import { Table } from "../parts/table.tsx"
import { At } from "../parts/time.tsx"
import { pathTo, usePlace, withQuery } from "../router.ts"
import { firstManifest } from "./first-manifest.ts"

interface TabProps {
  readonly project: string
}

const tabs: ReadonlyArray<readonly [id: string, name: string, tab: ComponentType<TabProps>]> = [
  ["budget", "Budget", lazily(async (get) => (await get(() => import("../panels/budget.tsx"))).BudgetPanel)],
  ["speed", "Speed", lazily(async (get) => (await get(() => import("../panels/speed.tsx"))).SpeedPanel)],
  [
    "domains",
    "Domains",
    lazily(async (get) => (await get(() => import("../panels/domains.tsx"))).DomainsPanel)
  ],
  ["access", "Access", lazily(async (get) => (await get(() => import("../panels/access.tsx"))).AccessPanel)],
  [
    "executions",
    "Executions",
    lazily(async (get) => (await get(() => import("../panels/executions.tsx"))).ExecutionsPanel)
  ],
  [
    "payments",
    "Payments",
    lazily(async (get) => (await get(() => import("../panels/payments.tsx"))).ProjectPayments)
  ]
]

export const ProjectPage = ({ slug }: { readonly slug: string }) => {
  const { org } = useCaller()
  const { all, complete } = useLive()
  const { query } = usePlace()
  const found = all.find(({ kind, name }) => kind === "Project" && name === slug)
  const tab = tabs.find(([id]) => id === query.get("show")) ?? tabs[0]
  if (found === undefined || tab === undefined)
    return complete ? (
      <>
        <Head title="Not here" />
        <p>There is no project “{slug}” in this organization.</p>
      </>
    ) : (
      <Loading what="the project" />
    )
  const [shown, , Tab] = tab
  return (
    <>
      <Head
        title={slug}
        crumbs={
          <Link to={pathTo(org.slug, "projects")} className="hover:underline">
            projects
          </Link>
        }
        beside={<State resource={found} />}
      >
        <Link to={withQuery(pathTo(org.slug, "resources"), { project: slug })} className={buttonClass()}>
          Its resources
        </Link>
        <Link to={pathTo(org.slug, "resources", found.uid)} className={buttonClass()}>
          Operate it
        </Link>
      </Head>
      <nav aria-label="Of the project" className="flex gap-1 overflow-x-auto border-b border-line">
        {tabs.map(([id, name]) => (
          <Link
            key={id}
            to={withQuery(pathTo(org.slug, "projects", slug), { show: id })}
            aria-current={id === shown ? "page" : undefined}
            className="-mb-px border-b-2 border-transparent px-3 py-2 whitespace-nowrap text-soft hover:text-ink aria-[current]:border-accent aria-[current]:font-medium aria-[current]:text-ink"
          >
            {name}
          </Link>
        ))}
      </nav>
      <Suspense fallback={<Loading what={shown} />}>
        <Tab project={slug} />
      </Suspense>
    </>
  )
}

export const ProjectsPage = () => {
  const { org } = useCaller()
  const { all, complete } = useLive()
  const projects = all.filter(({ kind }) => kind === "Project")
  const within = Map.groupBy(all, ({ project }) => project ?? "")
  return (
    <>
      <Head title="Projects" />
      <Panel>
        {!complete && projects.length === 0 ? (
          <Loading what="projects" />
        ) : (
          <Table
            of={projects}
            keyOf={({ uid }) => uid}
            label="Projects"
            empty={
              <>
                <p>There is none yet. This manifest makes one, and svc apply -f shop.yaml applies it:</p>
                <Code>{firstManifest(org.slug)}</Code>
              </>
            }
            columns={[
              {
                head: "Project",
                cell: ({ name }) => (
                  <Link to={pathTo(org.slug, "projects", name)} className="font-medium hover:underline">
                    {name}
                  </Link>
                )
              },
              {
                head: "Environments",
                look: "number",
                cell: ({ name }) =>
                  (within.get(name) ?? []).filter(({ kind }) => kind === "Environment").length
              },
              { head: "Resources", look: "number", cell: ({ name }) => (within.get(name) ?? []).length },
              {
                head: "Not ready",
                look: "number",
                cell: ({ name }) =>
                  (within.get(name) ?? []).filter((resource) => standingOf(resource) !== "ready").length ||
                  "–"
              },
              { head: "Created", cell: ({ createdAt }) => <At at={createdAt} /> }
            ]}
          />
        )}
      </Panel>
    </>
  )
}
