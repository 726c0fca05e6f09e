/** Plan and apply: a manifest is given, its plan reviewed, exactly that applied, and watched until it has converged. */
import * as Effect from "effect/Effect"
import { useRef, useState } from "react"
import { Manifest } from "#src/manifest/api.ts"
import { idempotent } from "../api/call.ts"
import { failureOf } from "../api/failure.ts"
import { manifest } from "../api/manifest.ts"
import { apiUrl } from "../api/place.ts"
import { useAct } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { useLive } from "../live/resources.ts"
import { standingOf } from "../live/standing.ts"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { inputClass } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { State } from "../parts/mark.tsx"
import { Head, Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { ResourceLink } from "../parts/resource-link.tsx"
import { At } from "../parts/time.tsx"
import { draftKeeper, readDraft } from "./draft.ts"
import { firstManifest } from "./first-manifest.ts"
import { Why } from "./overview.tsx"
import { effectsOf, lostOf, needsOwner, type Plan } from "./plan-groups.ts"
import { PlanReview } from "./plan-view.tsx"

/** What the operation takes at most. */
const longestBytes = 4 * 1024 * 1024

interface Goal {
  readonly uid: string
  readonly address: string
  readonly generation: number
}

export const PlanPage = () => {
  const { org } = useCaller()
  const [text, setText] = useState(readDraft)
  const [keepDraft] = useState(draftKeeper)
  const [prune, setPrune] = useState(false)
  const [asked, setAsked] = useState(false)
  const [plan, setPlan] = useState<Plan>()
  const [goals, setGoals] = useState<ReadonlyArray<Goal>>()
  const { acting, failure, act, setFailure } = useAct()
  const file = useRef<HTMLInputElement>(null)
  const params = { orgId: org.slug }
  const type = (next: string) => {
    keepDraft(next)
    setText(next)
    setPlan(undefined)
    setGoals(undefined)
  }

  const makePlan = () => {
    setPlan(undefined)
    setGoals(undefined)
    if (new Blob([text]).size > longestBytes) return setFailure(failureOf({ status: 413, detail: "" }))
    void act(() =>
      manifest.plan({ params, headers: idempotent(), query: prune ? { prune } : {}, payload: text })
    ).then(setPlan)
  }
  const apply = () =>
    void act(() =>
      manifest.apply({
        params,
        headers: idempotent(),
        payload: JSON.stringify({ planId: plan?.planId })
      })
    ).then((applied) => {
      if (applied === undefined) return
      setAsked(false)
      setGoals(applied.resources)
    })
  const present = () =>
    void act(() =>
      Effect.tryPromise({
        try: () => exported(org.slug),
        catch: (error) => error
      })
    ).then((manifest) => manifest !== undefined && type(manifest))

  const effects = plan === undefined ? 0 : effectsOf(plan)
  return (
    <>
      <Head title={plan === undefined ? "Plan a manifest" : headline(plan, effects)}>
        {plan !== undefined && goals === undefined && (
          <>
            <span className="text-soft">
              Valid until <At at={plan.expiresAt} />
            </span>
            <Button onClick={() => setPlan(undefined)}>Edit</Button>
            {effects > 0 && plan.blockers.length === 0 && (
              <Gated by={Manifest.endpoints.apply} what="Applying">
                {needsOwner(plan) && org.role !== "owner" ? (
                  <span className="text-xs text-faint">Applying this takes the role owner</span>
                ) : (
                  <Button
                    look="main"
                    busy={acting}
                    onClick={() => (lostOf(plan) > 0 ? setAsked(true) : apply())}
                  >
                    Apply exactly this
                  </Button>
                )}
              </Gated>
            )}
          </>
        )}
      </Head>
      {failure !== undefined && !asked && <Problem failure={failure} />}
      {plan !== undefined && (
        <Confirm
          open={asked}
          title={lostOf(plan) === 1 ? "Delete one thing?" : `Delete ${lostOf(plan)} things?`}
          says="What is deleted or replaced is gone with the data in it; backups are kept as long as they are. The plan names each of them."
          action="Apply and delete"
          look="danger"
          busy={acting}
          failure={failure}
          close={() => setAsked(false)}
          confirmed={apply}
        />
      )}
      {goals !== undefined ? (
        <Converging goals={goals} />
      ) : plan !== undefined ? (
        <PlanReview plan={plan} role={org.role} />
      ) : (
        <Gated by={Manifest.endpoints.plan} what="Planning">
          <label className="block font-medium" htmlFor="manifest">
            Manifest
          </label>
          <p className="mb-2 text-soft">YAML or JSON. Nothing is changed before the plan is reviewed.</p>
          <textarea
            id="manifest"
            value={text}
            spellCheck={false}
            rows={22}
            placeholder={firstManifest(org.slug)}
            onChange={(event) => type(event.target.value)}
            className={`${inputClass} mt-2 font-mono text-[12.5px]`}
          />
          <div className="mt-3 flex flex-wrap items-center gap-2">
            <Button look="main" busy={acting} disabled={text.trim() === ""} onClick={makePlan}>
              Plan
            </Button>
            <Button onClick={() => file.current?.click()}>Open a file</Button>
            <input
              ref={file}
              type="file"
              accept=".yaml,.yml,.json"
              aria-label="Manifest file"
              className="hidden"
              onChange={(event) => {
                const chosen = event.target.files?.[0]
                event.target.value = ""
                if (chosen === undefined) return
                if (chosen.size > longestBytes) return setFailure(failureOf({ status: 413, detail: "" }))
                setFailure(undefined)
                void chosen.text().then(type)
              }}
            />
            <Button busy={acting} onClick={present}>
              Start from what is there
            </Button>
            <label className="flex items-center gap-2">
              <input
                type="checkbox"
                className="accent-accent"
                checked={prune}
                onChange={(event) => setPrune(event.target.checked)}
              />
              Delete what a list no longer names
            </label>
          </div>
        </Gated>
      )}
    </>
  )
}

const headline = ({ blockers }: Plan, effects: number): string =>
  blockers.length > 0
    ? "It cannot be applied yet"
    : effects === 0
      ? "Nothing to change"
      : `${effects} ${effects === 1 ? "change" : "changes"}`

/** The present state as a manifest in YAML, which the typed client would ask for as JSON. */
const exported = async (org: string): Promise<string> => {
  const response = await fetch(`${apiUrl}/v1/orgs/${encodeURIComponent(org)}/manifest`, {
    headers: { accept: "application/yaml" },
    signal: AbortSignal.timeout(60_000)
  })
  if (!response.ok) throw failureOf({ status: response.status, detail: "" })
  return await response.text()
}

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
        <table className="w-full">
          <thead>
            <tr>
              <th>Resource</th>
              <th>State</th>
              <th>Why</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, 300).map(({ uid, address, resource }) => (
              <tr key={uid}>
                <td>{resource === undefined ? address : <ResourceLink resource={resource} full />}</td>
                <td>{resource === undefined ? "Gone" : <State resource={resource} />}</td>
                <td className="text-soft">{resource !== undefined && <Why resource={resource} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Panel>
    </>
  )
}
