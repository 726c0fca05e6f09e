/** One resource: what was asked for beside what is there, why it stands as it does, and what happened to it. */
import { type ReactNode, Suspense } from "react"
import { kindInWords } from "#schemas/kind.ts"
import { client } from "../api/client.ts"
import { useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { meaningOf } from "../live/reasons.ts"
import { type Resource, useLive } from "../live/resources.ts"
import { standingOf } from "../live/standing.ts"
import { Answered } from "../parts/answered.tsx"
import { linesOf } from "../parts/fields.ts"
import { lazily } from "../parts/lazily.ts"
import { Link } from "../parts/link.tsx"
import { Mark, State } from "../parts/mark.tsx"
import { Empty, Head, Panel } from "../parts/panel.tsx"
import { Principal, useNames } from "../parts/principal.tsx"
import { Loading } from "../parts/problem.tsx"
import { placeOf } from "../parts/resource-link.tsx"
import { Ago, At, In } from "../parts/time.tsx"
import { Arrows, useAwaited } from "../parts/waits-for.tsx"
import { pathTo, withQuery } from "../router.ts"
import { Actions } from "./actions.tsx"
import { Why } from "./overview.tsx"

const Service = lazily(async (get) => (await get(() => import("../panels/service.tsx"))).default)

export const ResourcePage = ({ uid }: { readonly uid: string }) => {
  const { byUid, complete } = useLive()
  const resource = byUid.get(uid)
  // Nothing of one resource, such as a password that is shown or a name that was typed, is left on another's page.
  if (resource !== undefined) return <Found key={uid} resource={resource} />
  if (!complete) return <Loading what="the resource" />
  return (
    <>
      <Head title="Not here" />
      <p>
        There is no such resource in this organization: it was deleted, or it belongs to another organization.
      </p>
    </>
  )
}

const Found = ({ resource }: { readonly resource: Resource }) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, uid: resource.uid }
  const detail = useAnswer(
    `resource ${org.slug} ${resource.uid}`,
    () => client.resources.get({ params }),
    resource.revision
  )
  const { project, environment } = resource
  const list = (query: Readonly<Record<string, string>>) => withQuery(pathTo(org.slug, "resources"), query)
  return (
    <>
      <Head
        title={resource.name}
        crumbs={
          <>
            {project !== null && (
              <>
                <Link to={list({ project })} className="hover:underline">
                  {project}
                </Link>
                {" / "}
              </>
            )}
            {project !== null && environment !== null && (
              <>
                <Link to={list({ project, environment })} className="hover:underline">
                  {environment}
                </Link>
                {" / "}
              </>
            )}
            <Link to={list({ kind: resource.kind })} className="hover:underline">
              {kindInWords(resource.kind)}
            </Link>
          </>
        }
        beside={<State resource={resource} />}
      >
        <Actions resource={resource} />
      </Head>
      <Progress resource={resource} />
      <Suspense fallback={<Loading what="the service" />}>
        <Service resource={resource} />
      </Suspense>
      <div className="grid gap-x-3.5 lg:grid-cols-2">
        <section className="min-w-0">
          <h2>Conditions</h2>
          <Conditions resource={resource} />
        </section>
        <section className="min-w-0">
          <h2>Facts</h2>
          <Facts resource={resource} />
        </section>
      </div>
      <h2>Asked for, and there</h2>
      <Panel>
        <Answered of={detail} what="the specification">
          {({ body }) => <Beside resource={resource} spec={body.spec} status={body.status} />}
        </Answered>
      </Panel>
      <h2>Events</h2>
      <Events resource={resource} />
    </>
  )
}

/** What comes next, where something is to come. */
const Progress = ({ resource }: { readonly resource: Resource }) => {
  const { attempt, nextAttemptAt, lastError, generation, observedGeneration } = resource
  const standing = standingOf(resource)
  const awaited = useAwaited(resource)
  const cause = awaited.at(-1)?.resource
  if (standing === "ready" && lastError === null) return null
  return (
    <div className="mb-4 rounded-lg border border-line bg-panel px-3.5 py-3">
      <p className="flex flex-wrap gap-x-4 gap-y-1">
        {observedGeneration < generation && (
          <span>
            Generation {generation} was asked for, {observedGeneration} is there.
          </span>
        )}
        {attempt > 0 && (
          <span>
            {attempt} {attempt === 1 ? "try" : "tries"} without success.
          </span>
        )}
        {nextAttemptAt !== null && (
          <span>
            Next try <In at={nextAttemptAt} />.
          </span>
        )}
      </p>
      {awaited.length > 0 && (
        <p className="mt-1">
          <Arrows to={awaited} />
          {cause !== undefined && (
            <span className="text-soft">
              <Why resource={cause} />
            </span>
          )}
        </p>
      )}
      {lastError !== null && (
        <p className="mt-1 text-bad wrap-anywhere" dir="auto">
          {lastError}
        </p>
      )}
    </div>
  )
}

const Conditions = ({ resource }: { readonly resource: Resource }) => (
  <Panel>
    <table className="w-full">
      <thead>
        <tr>
          <th>Condition</th>
          <th>Why</th>
          <th>Since</th>
        </tr>
      </thead>
      <tbody>
        {resource.conditions.map(({ type, status, reason, message, lastTransitionAt }) => {
          const good = (status === "true") === (type === "Ready" || type === "Synced")
          return (
            <tr key={type}>
              <td>
                <span className="inline-flex items-center gap-2 whitespace-nowrap">
                  <Mark
                    standing={
                      status === "unknown"
                        ? "waiting"
                        : good
                          ? "ready"
                          : type === "Paused"
                            ? "paused"
                            : "waiting"
                    }
                  />
                  {type} <span className="text-faint">{status}</span>
                </span>
              </td>
              <td className="text-soft wrap-anywhere">
                <b className="font-medium text-ink" title={meaningOf(resource.kind, reason)}>
                  {reason}
                </b>{" "}
                <span dir="auto">{message}</span>
              </td>
              <td>
                <Ago at={lastTransitionAt} />
              </td>
            </tr>
          )
        })}
      </tbody>
    </table>
    {resource.conditions.length === 0 && <Empty>Nobody has looked at it yet.</Empty>}
  </Panel>
)

const Facts = ({ resource }: { readonly resource: Resource }) => {
  const rows: ReadonlyArray<readonly [string, ReactNode]> = [
    ["Lies in", placeOf(resource) || "the organization"],
    ["Address", <code className="font-mono text-[12.5px] wrap-anywhere">{resource.address}</code>],
    ["Generation", `${resource.generation}, acted on: ${resource.observedGeneration}`],
    ["Managed by", resource.managedBy === "manifest" ? "a manifest" : "the API"],
    ["Protected", resource.protected ? "yes: nothing deletes it" : "no"],
    ["Created", <At at={resource.createdAt} />],
    ["Changed", <At at={resource.updatedAt} />]
  ]
  return (
    <Panel>
      <dl className="grid grid-cols-[8rem_minmax(0,1fr)] gap-x-3 gap-y-1.5 px-3.5 py-3">
        {rows.map(([name, value]) => (
          <div key={name} className="contents">
            <dt className="text-soft">{name}</dt>
            <dd className="wrap-anywhere">{value}</dd>
          </div>
        ))}
      </dl>
    </Panel>
  )
}

/** The field's name within a JSON Pointer, as the lines have it. */
const dotted = (pointer: string) => pointer.replace(/^\//, "").replaceAll("/", ".")

const Beside = ({
  resource,
  spec,
  status
}: {
  readonly resource: Resource
  readonly spec: unknown
  readonly status: unknown
}) => {
  const asked = linesOf(spec)
  const seen = new Map(linesOf(status).map(({ path, value }) => [path, value]))
  const differences = new Map(resource.differences.map(({ field, message }) => [dotted(field), message]))
  const only = [...seen].filter(([path]) => !asked.some((line) => line.path === path))
  const others = [...differences].filter(([path]) => !asked.some((line) => line.path === path))
  return (
    <table className="w-full font-mono text-[12.5px]">
      <thead className="font-sans">
        <tr>
          <th>Field</th>
          <th>Asked for</th>
          <th>There</th>
        </tr>
      </thead>
      <tbody>
        {asked.map(({ path, value }) => {
          const difference = differences.get(path)
          return (
            <tr key={path} className={difference === undefined ? "" : "bg-del"}>
              <td className="wrap-anywhere">{path}</td>
              <td className="wrap-anywhere" dir="auto">
                {value}
              </td>
              <td className="wrap-anywhere" dir="auto">
                {difference ?? seen.get(path) ?? (
                  <span className="text-faint">
                    {resource.observedGeneration < resource.generation ? "not yet" : "as asked for"}
                  </span>
                )}
              </td>
            </tr>
          )
        })}
        {others.map(([path, message]) => (
          <tr key={`difference ${path}`} className="bg-del">
            <td className="wrap-anywhere">{path}</td>
            <td />
            <td className="wrap-anywhere" dir="auto">
              {message}
            </td>
          </tr>
        ))}
        {only.map(([path, value]) => (
          <tr key={`seen ${path}`}>
            <td className="wrap-anywhere">{path}</td>
            <td className="text-faint">–</td>
            <td className="wrap-anywhere" dir="auto">
              {value}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

const Events = ({ resource }: { readonly resource: Resource }) => {
  const { org } = useCaller()
  const names = useNames()
  const answer = useAnswer(
    `events ${org.slug} ${resource.uid}`,
    () => client.resources.events({ params: { orgId: org.slug, uid: resource.uid }, query: { limit: 50 } }),
    resource.revision
  )
  return (
    <Panel>
      <Answered of={answer} what="events">
        {({ items }) =>
          items.length === 0 ? (
            <Empty>Nothing has happened to it yet.</Empty>
          ) : (
            <ol className="py-1.5">
              {items.map(({ id, type, reason, message, actor, count, lastAt }) => (
                <li key={id} className="grid grid-cols-[7.5rem_0.5rem_minmax(0,1fr)] gap-x-3 px-3.5 py-1.5">
                  <span className="text-right text-faint">
                    <At at={lastAt} />
                  </span>
                  <span className="flex h-5 items-center">
                    <Mark standing={type === "Warning" ? "failed" : "ready"} />
                  </span>
                  <span className="wrap-anywhere">
                    <b className="font-medium">{reason}</b>{" "}
                    <span className="text-soft" dir="auto">
                      {message}
                    </span>
                    {count > 1 && <span className="text-faint"> ({count} times)</span>}
                    {actor !== null && (
                      <span className="text-faint">
                        {" "}
                        by <Principal of={actor} names={names} />
                      </span>
                    )}
                  </span>
                </li>
              ))}
            </ol>
          )
        }
      </Answered>
    </Panel>
  )
}
