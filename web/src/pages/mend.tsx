/** The one thing that mends a resource, where there is one: for lists. */
import { Suspense, useState } from "react"
import { Resources } from "#src/resources/api.ts"
import { idempotent } from "../api/call.ts"
import { client } from "../api/client.ts"
import { takesRole } from "../api/roles.ts"
import { useAct } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import type { Resource } from "../live/resources.ts"
import { standingOf } from "../live/standing.ts"
import { Button } from "../parts/button.tsx"
import { lazily } from "../parts/lazily.ts"

/** The library of dialogs is no part of the first screen. */
const Confirm = lazily(async (get) => (await get(() => import("../parts/confirm.tsx"))).Confirm)

export const resumeSays =
  "It is looked at at once, and whatever differs from what was asked for is changed then."

export const Mend = ({ resource }: { readonly resource: Resource }) => {
  const { org } = useCaller()
  const { acting, failure, act } = useAct()
  const [asked, setAsked] = useState(false)
  const params = { orgId: org.slug, uid: resource.uid }
  const standing = standingOf(resource)
  if (standing === "ready" || resource.deleting) return null
  const paused = standing === "paused"
  const { resume, retry } = Resources.endpoints
  const needed = takesRole(paused ? resume : retry, org.role)
  if (needed !== undefined) return <span className="text-xs text-faint">takes the role {needed}</span>
  return (
    <span title={failure?.message}>
      <Button
        busy={acting}
        aria-label={`${paused ? "Resume" : "Look now"}: ${resource.name}`}
        onClick={() =>
          paused ? setAsked(true) : void act(() => client.resources.retry({ params, headers: idempotent() }))
        }
      >
        {failure !== undefined && !asked ? "Try again" : paused ? "Resume" : "Look now"}
      </Button>
      {asked && (
        <Suspense>
          <Confirm
            open
            title={`Resume ${resource.name}`}
            says={resumeSays}
            action="Resume"
            busy={acting}
            failure={failure}
            close={() => setAsked(false)}
            confirmed={() =>
              void act(() => client.resources.resume({ params, headers: idempotent() })).then(
                (answer) => answer !== undefined && setAsked(false)
              )
            }
          />
        </Suspense>
      )}
    </span>
  )
}
