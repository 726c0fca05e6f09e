/** A manifest is given and planned; the plan has a page of its own. */
import * as Effect from "effect/Effect"
import { Suspense, useRef, useState } from "react"
import { Manifest } from "#src/manifest/api.ts"
import { idempotent } from "../api/call.ts"
import { failureOf } from "../api/failure.ts"
import { manifest } from "../api/manifest.ts"
import { apiUrl } from "../api/place.ts"
import { useAct } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Button } from "../parts/button.tsx"
import { Gated } from "../parts/gated.tsx"
import { lazily } from "../parts/lazily.ts"
import { Head } from "../parts/panel.tsx"
import { Loading, Problem } from "../parts/problem.tsx"
import { go, pathTo } from "../router.ts"
import { draftKeeper, readDraft } from "./draft.ts"
import { firstManifest } from "./first-manifest.ts"

const EditorField = lazily(
  async (get) => (await get(() => import("../manifest/editor-field.tsx"))).EditorField
)

/** What the operation takes at most. */
const longestBytes = 4 * 1024 * 1024

export const PlanPage = () => {
  const { org } = useCaller()
  const [text, setText] = useState(readDraft)
  const [keepDraft] = useState(draftKeeper)
  const [prune, setPrune] = useState(false)
  const { acting, failure, act, setFailure } = useAct()
  const file = useRef<HTMLInputElement>(null)
  const params = { orgId: org.slug }
  const type = (next: string) => {
    keepDraft(next)
    setText(next)
  }

  const here = pathTo(org.slug, "plan")
  const makePlan = () => {
    if (new Blob([text]).size > longestBytes) return setFailure(failureOf({ status: 413, detail: "" }))
    void act(() =>
      manifest.plan({ params, headers: idempotent(), query: prune ? { prune } : {}, payload: text })
    ).then((made) => {
      // Who has gone on to another page meanwhile stays there.
      if (made !== undefined && location.pathname === here) go(`${here}/${made.planId}`)
    })
  }
  const present = () =>
    void act(() =>
      Effect.tryPromise({
        try: () => exported(org.slug),
        catch: (error) => error
      })
    ).then((manifest) => manifest !== undefined && type(manifest))

  return (
    <>
      <Head title="Plan a manifest" />
      {failure !== undefined && <Problem failure={failure} />}
      <Gated by={Manifest.endpoints.plan} what="Planning">
        <p className="font-medium">Manifest</p>
        <p className="mb-2 text-soft">
          YAML or JSON. Nothing is changed before the plan is reviewed. Ctrl+Space lists what may stand at the
          cursor; F8 goes to the next problem.
        </p>
        <Suspense fallback={<Loading what="the editor" />}>
          <EditorField text={text} label="Manifest" example={firstManifest(org.slug)} changed={type} />
        </Suspense>
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
    </>
  )
}

/** The present state as a manifest in YAML, which the typed client would ask for as JSON. */
const exported = async (org: string): Promise<string> => {
  const response = await fetch(`${apiUrl}/v1/orgs/${encodeURIComponent(org)}/manifest`, {
    headers: { accept: "application/yaml" },
    signal: AbortSignal.timeout(60_000)
  })
  if (!response.ok) throw failureOf({ status: response.status, detail: "" })
  return await response.text()
}
