/** An organization at one look: what is not as it should be first, then its projects, then what happened. */
import { AuditLog } from "#src/organizations/api/audit.ts"
import { client } from "../api/client.ts"
import { takesRole } from "../api/roles.ts"
import { useAnswer } from "../api/use-answer.ts"
import { type Caller, useCaller } from "../caller.ts"
import { type Resource, useLive } from "../live/resources.ts"
import { order, type Standing, standingOf, whyOf } from "../live/standing.ts"
import { buttonClass } from "../parts/button.tsx"
import { Link } from "../parts/link.tsx"
import { Mark, State } from "../parts/mark.tsx"
import { Code, Empty, Head, Panel } from "../parts/panel.tsx"
import { Loading } from "../parts/problem.tsx"
import { ResourceLink } from "../parts/resource-link.tsx"
import { Ago, In } from "../parts/time.tsx"
import { pathTo, withQuery } from "../router.ts"
import { firstManifest } from "./first-manifest.ts"
import { Mend } from "./mend.tsx"
import { RecentChanges } from "./recent-changes.tsx"

/** So many of them are on the overview; the list of resources has all. */
const mostShown = 20

export const Overview = () => {
  const { org } = useCaller()
  const { all, complete } = useLive()
  const wrong = all
    .map((resource) => ({ resource, rank: order.indexOf(standingOf(resource)) }))
    .filter(({ resource }) => standingOf(resource) !== "ready")
    .sort((a, b) => a.rank - b.rank)
    .map(({ resource }) => resource)
  return (
    <>
      <Head title="Overview">
        <Link to={pathTo(org.slug, "plan")} className={buttonClass()}>
          Plan a manifest
        </Link>
      </Head>
      {!complete && all.length === 0 ? (
        <Loading what="resources" />
      ) : all.length === 0 ? (
        <Nothing />
      ) : (
        <>
          <h2>Not as it should be</h2>
          {wrong.length === 0 ? (
            <Panel>
              <p className="flex items-center gap-2 px-3.5 py-3">
                <Mark standing="ready" />
                {all.length === 1 ? "The one resource is ready." : `All ${all.length} resources are ready.`}
              </p>
            </Panel>
          ) : (
            <Wrong resources={wrong.slice(0, mostShown)} />
          )}
          {wrong.length > mostShown && (
            <p className="mt-2">
              <Link
                to={withQuery(pathTo(org.slug, "resources"), { show: "not-ready" })}
                className="text-accent hover:underline"
              >
                All {wrong.length} of them
              </Link>
            </p>
          )}
          <h2>Projects</h2>
          <Projects all={all} />
        </>
      )}
      {takesRole(AuditLog.endpoints.list, org.role) === undefined && <RecentChanges />}
    </>
  )
}

const Nothing = () => (
  <Panel>
    <Empty>
      <p>There is nothing in this organization yet. A manifest makes the first project:</p>
      <Code>{firstManifest(useCaller().org.slug)}</Code>
      <p className="mt-3">
        Paste it under <b>Plan a manifest</b>, or run{" "}
        <code className="font-mono">svc apply -f shop.yaml</code>.
      </p>
    </Empty>
  </Panel>
)

const Wrong = ({ resources }: { readonly resources: ReadonlyArray<Resource> }) => (
  <Panel>
    <table className="w-full max-md:hidden">
      <thead>
        <tr>
          <th>Resource</th>
          <th>State</th>
          <th>Why</th>
          <th>Since</th>
          <th>Next try</th>
          <th>
            <span className="sr-only">Action</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {resources.map((resource) => {
          const why = whyOf(resource)
          return (
            <tr key={resource.uid}>
              <td>
                <ResourceLink resource={resource} full />
              </td>
              <td>
                <State resource={resource} />
              </td>
              <td className="text-soft">
                <Why resource={resource} />
              </td>
              <td>{why !== undefined && <Ago at={why.lastTransitionAt} />}</td>
              <td>{resource.nextAttemptAt !== null && <In at={resource.nextAttemptAt} />}</td>
              <td className="text-right">
                <Mend resource={resource} />
              </td>
            </tr>
          )
        })}
      </tbody>
    </table>
    <ul className="md:hidden">
      {resources.map((resource) => (
        <li key={resource.uid} className="space-y-1 border-t border-line px-3.5 py-3 first:border-t-0">
          <div className="flex items-start justify-between gap-3">
            <span className="min-w-0">
              <ResourceLink resource={resource} full />
            </span>
            <State resource={resource} />
          </div>
          <p className="text-soft">
            <Why resource={resource} />
          </p>
          <Mend resource={resource} />
        </li>
      ))}
    </ul>
  </Panel>
)

export const Why = ({ resource }: { readonly resource: Resource }) => {
  const why = whyOf(resource)
  if (why === undefined) return <>Nobody has looked at it yet.</>
  return (
    <span className="wrap-anywhere">
      <b className="font-medium text-ink">{why.reason}</b> <span dir="auto">{why.message}</span>
    </span>
  )
}

/** Each asks for its budget. */
const mostProjects = 24
const rankOf = (resources: ReadonlyArray<Resource>) =>
  Math.min(...resources.map((resource) => order.indexOf(standingOf(resource))))

const Projects = ({ all }: { readonly all: ReadonlyArray<Resource> }) => {
  const { org } = useCaller()
  const projects = Map.groupBy(
    all.filter(({ project }) => project !== null),
    ({ project }) => project ?? ""
  )
  return (
    <ul className="grid gap-3.5 sm:grid-cols-2 xl:grid-cols-4">
      {[...projects]
        .sort(([, a], [, b]) => rankOf(a) - rankOf(b))
        .slice(0, mostProjects)
        .map(([slug, resources]) => {
          const standings = resources.map(standingOf)
          const worst: Standing = order.find((standing) => standings.includes(standing)) ?? "ready"
          const count = standings.filter((standing) => standing === worst).length
          const environments = resources.filter(({ kind }) => kind === "Environment").length
          return (
            <li key={slug} className="rounded-lg border border-line bg-panel px-3.5 py-3">
              <div className="flex items-baseline justify-between gap-3">
                <Link
                  to={withQuery(pathTo(org.slug, "resources"), { project: slug })}
                  className="min-w-0 text-[15px] font-semibold wrap-anywhere hover:underline"
                >
                  {slug}
                </Link>
                <span className="flex items-center gap-2 whitespace-nowrap text-soft">
                  <Mark standing={worst} />
                  {worst === "ready" ? `${count} ready` : `${count} of ${resources.length} ${worst}`}
                </span>
              </div>
              <p className="mt-1 text-[13px] text-soft">
                {environments} {environments === 1 ? "environment" : "environments"}
              </p>
              <Budget org={org} project={slug} />
            </li>
          )
        })}
      {projects.size > mostProjects && (
        <li className="self-center text-soft">
          <Link to={pathTo(org.slug, "resources")} className="text-accent hover:underline">
            All {projects.size} projects
          </Link>
        </li>
      )}
    </ul>
  )
}

const Budget = ({ org, project }: { readonly org: Caller["org"]; readonly project: string }) => {
  const budget = useAnswer(`budget ${org.slug} ${project}`, () =>
    client.projects.getBudget({ params: { orgId: org.slug, projectId: project } })
  )
  const { spentUsd = 0, monthlyCapUsd = null } = budget.value?.body ?? {}
  if (budget.value === undefined) return null
  const part =
    monthlyCapUsd === null || monthlyCapUsd === 0 ? undefined : Math.min(1, spentUsd / monthlyCapUsd)
  return (
    <>
      {part !== undefined && (
        <div className="mt-2 h-1.5 overflow-hidden rounded-full bg-line">
          <div
            className={`h-full ${part > 0.8 ? "bg-wait" : "bg-accent"}`}
            style={{ width: `${part * 100}%` }}
          />
        </div>
      )}
      <p className="mt-1 text-[13px] text-soft tabular-nums">
        {spentUsd.toFixed(2)} {monthlyCapUsd !== null && `of ${monthlyCapUsd} `}USD this month
      </p>
    </>
  )
}
