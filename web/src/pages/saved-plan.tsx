/** A plan at an address that a teammate can open: it is reviewed, exactly that applied, and watched until it has converged. */
import { useState } from "react"
import { Manifest, type SavedPlanView } from "#src/manifest/api.ts"
import { idempotent } from "../api/call.ts"
import { manifest } from "../api/manifest.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { standingOf } from "../live/standing.ts"
import { Answered } from "../parts/answered.tsx"
import { Button, buttonClass } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { Gated } from "../parts/gated.tsx"
import { Link } from "../parts/link.tsx"
import { State } from "../parts/mark.tsx"
import { Head, Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { ResourceLink } from "../parts/resource-link.tsx"
import { Table } from "../parts/table.tsx"
import { At } from "../parts/time.tsx"
import { pathTo } from "../router.ts"
import { Why } from "./overview.tsx"
import { effectsOf, lostOf, needsOwner, type Plan } from "./plan-groups.ts"
import { PlanReview } from "./plan-view.tsx"

type SavedPlan = typeof SavedPlanView.Type

export const SavedPlanPage = ({ id }: { readonly id: string }) => {
  const { org } = useCaller()
  const saved = useAnswer(`plan ${org.slug} ${id}`, () =>
    manifest.getPlan({ params: { orgId: org.slug, planId: id } })
  )
  return (
    <Gated by={Manifest.endpoints.getPlan} what="Reading plans">
      <Answered of={saved} what="the plan">
        {(plan) => <Review key={id} plan={plan} />}
      </Answered>
    </Gated>
  )
}

const Review = ({ plan }: { readonly plan: SavedPlan }) => {
  const { org } = useCaller()
  const [asked, setAsked] = useState(false)
  const [goals, setGoals] = useState<ReadonlyArray<Goal>>()
  const { acting, failure, act } = useAct()
  const apply = () =>
    void act(() =>
      manifest.apply({
        params: { orgId: org.slug },
        headers: idempotent(),
        payload: JSON.stringify({ planId: plan.planId })
      })
    ).then((applied) => {
      if (applied === undefined) return
      setAsked(false)
      setGoals(applied.resources)
    })
  const { appliedAt, moved } = plan
  const losses = lostOf(plan)
  const effects = effectsOf(plan)
  const applies = effects > 0 && plan.blockers.length === 0 && moved.length === 0 && appliedAt === null
  return (
    <>
      <Head
        title={headline(plan, effects)}
        crumbs={<Link to={pathTo(org.slug, "plan")}>Plan a manifest</Link>}
      >
        {goals === undefined && (
          <>
            <span className="text-soft">
              {appliedAt !== null ? (
                <>
                  Applied <At at={appliedAt} />
                </>
              ) : (
                <>
                  Valid until <At at={plan.expiresAt} />
                </>
              )}
            </span>
            <Link to={pathTo(org.slug, "plan")} className={buttonClass()}>
              Edit
            </Link>
            {applies && (
              <Gated by={Manifest.endpoints.apply} what="Applying">
                {needsOwner(plan) && org.role !== "owner" ? (
                  <span className="text-xs text-faint">Applying this takes the role owner</span>
                ) : (
                  <Button look="main" busy={acting} onClick={() => (losses > 0 ? setAsked(true) : apply())}>
                    Apply exactly this
                  </Button>
                )}
              </Gated>
            )}
          </>
        )}
      </Head>
      {failure !== undefined && !asked && <Problem failure={failure} />}
      {moved.length > 0 && <Moved addresses={moved} />}
      <Confirm
        open={asked}
        title={losses === 1 ? "Delete one thing?" : `Delete ${losses} things?`}
        says="What is deleted or replaced is gone with the data in it; backups are kept as long as they are. The plan names each of them."
        action="Apply and delete"
        look="danger"
        busy={acting}
        failure={failure}
        close={() => setAsked(false)}
        confirmed={apply}
      />
      {goals !== undefined ? <Converging goals={goals} /> : <PlanReview plan={plan} role={org.role} />}
    </>
  )
}

/** So many addresses are named. */
const mostNamed = 20

const Moved = ({ addresses }: { readonly addresses: ReadonlyArray<string> }) => (
  <section role="alert" className="rounded-lg border border-bad/50 bg-del px-3.5 py-2.5">
    <p>It cannot be applied any more: what it was made for has changed. Plan again and review that.</p>
    <p className="mt-1 font-mono text-[12.5px] wrap-anywhere">
      {addresses.slice(0, mostNamed).join(", ")}
      {addresses.length > mostNamed && ` and ${addresses.length - mostNamed} more`}
    </p>
  </section>
)

const headline = ({ blockers }: Plan, effects: number): string =>
  blockers.length > 0
    ? "It cannot be applied yet"
    : effects === 0
      ? "Nothing to change"
      : `${effects} ${effects === 1 ? "change" : "changes"}`

interface Goal {
  readonly uid: string
  readonly address: string
  readonly generation: number
}

/** Of thousands that were applied so many are drawn; the sentence counts all. */
const mostDrawn = 300

const Converging = ({ goals }: { readonly goals: ReadonlyArray<Goal> }) => {
  const { byUid } = useLive()
  const rows = goals.map((goal) => {
    const resource = byUid.get(goal.uid)
    const there = resource === undefined || resource.observedGeneration >= goal.generation
    return { ...goal, resource, done: there && (resource === undefined || standingOf(resource) === "ready") }
  })
  const left = rows.filter(({ done }) => !done).length
  return (
    <>
      <p role="status" className="mb-3">
        {left === 0
          ? "Everything that was applied is there."
          : `Applied. ${left} of ${rows.length} are not there yet.`}
      </p>
      <Panel>
        <Table
          of={rows.slice(0, mostDrawn)}
          keyOf={({ uid }) => uid}
          columns={[
            {
              head: "Resource",
              cell: ({ resource, address }) =>
                resource === undefined ? address : <ResourceLink resource={resource} full />
            },
            {
              head: "State",
              cell: ({ resource }) => (resource === undefined ? "Gone" : <State resource={resource} />)
            },
            {
              head: "Why",
              look: "soft",
              cell: ({ resource }) => resource !== undefined && <Why resource={resource} />
            }
          ]}
          empty="Nothing had to be written."
        />
      </Panel>
    </>
  )
}
