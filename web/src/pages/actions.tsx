/** What an operator does to a resource by hand. What each will do is said before it is done. */
import * as DateTime from "effect/DateTime"
import { useState } from "react"
import { Resources } from "#src/resources/api.ts"
import { idempotent } from "../api/call.ts"
import { client } from "../api/client.ts"
import { takesRole } from "../api/roles.ts"
import { useAct } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import type { Resource } from "../live/resources.ts"
import { standingOf } from "../live/standing.ts"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { Field } from "../parts/field.tsx"
import { Problem } from "../parts/problem.tsx"
import { resumeSays } from "./mend.tsx"

type Props = { readonly resource: Resource }

type Asked = "pause" | "resume" | "protect" | "abandon" | undefined

/** Local date and time of a form's field as a moment. */
const momentOf = (text: string) => DateTime.makeUnsafe(new Date(text))

export const Actions = ({ resource }: Props) => {
  const { org } = useCaller()
  const { acting, failure, act, setFailure } = useAct()
  const [asked, setAsked] = useState<Asked>()
  const [reason, setReason] = useState("")
  const [until, setUntil] = useState("")
  const [name, setName] = useState("")
  const params = { orgId: org.slug, uid: resource.uid }
  const needed = takesRole(Resources.endpoints.pause, org.role)
  if (needed !== undefined)
    return <span className="text-xs text-faint">Operating it takes the role {needed}</span>

  const paused = standingOf(resource) === "paused"
  const ask = (what: Asked) => {
    setFailure(undefined)
    setAsked(what)
  }
  const close = () => setAsked(undefined)
  const done = (answer: unknown) => {
    if (answer === undefined) return
    close()
    setReason("")
    setUntil("")
    setName("")
  }
  const dialog = { busy: acting, failure, close }
  const reasonField = (
    <Field
      label="Reason"
      value={reason}
      maxLength={500}
      required
      changed={setReason}
      hint="Others read it."
    />
  )

  return (
    <>
      <Button
        busy={acting && asked === undefined}
        onClick={() => void act(() => client.resources.retry({ params, headers: idempotent() }))}
        title="Looks at the real thing now and does what is missing, without waiting for the next try."
      >
        Look now
      </Button>
      {paused ? (
        <Button onClick={() => ask("resume")}>Resume</Button>
      ) : (
        <Button onClick={() => ask("pause")}>Pause</Button>
      )}
      <Button onClick={() => ask("protect")}>{resource.protected ? "Unprotect" : "Protect"}</Button>
      <Button onClick={() => ask("abandon")} className="text-bad!">
        Abandon
      </Button>
      {failure !== undefined && asked === undefined && <Problem failure={failure} />}

      <Confirm
        {...dialog}
        open={asked === "pause"}
        title={`Pause ${resource.name}`}
        says="It is observed and not touched: no repair of drift, no changes that are asked for meanwhile, no deletion. What runs goes on running."
        action="Pause"
        ready={reason.trim() !== "" && (until === "" || !Number.isNaN(Date.parse(until)))}
        confirmed={() =>
          void act(() =>
            client.resources.pause({
              params,
              headers: idempotent(),
              payload: { reason, ...(until === "" ? {} : { until: momentOf(until) }) }
            })
          ).then(done)
        }
      >
        {reasonField}
        <Field
          label="Until"
          type="datetime-local"
          value={until}
          changed={setUntil}
          hint="Your time zone. Empty: until somebody resumes it."
        />
      </Confirm>
      <Confirm
        {...dialog}
        open={asked === "resume"}
        title={`Resume ${resource.name}`}
        says={resumeSays}
        action="Resume"
        confirmed={() =>
          void act(() => client.resources.resume({ params, headers: idempotent() })).then(done)
        }
      />
      <Confirm
        {...dialog}
        open={asked === "protect"}
        title={`${resource.protected ? "Unprotect" : "Protect"} ${resource.name}`}
        says={
          resource.protected
            ? "It can be deleted again, by hand and by a manifest that no longer names it."
            : "Nothing can delete it, neither by hand nor by a manifest, until the protection is taken away."
        }
        action={resource.protected ? "Unprotect" : "Protect"}
        confirmed={() =>
          void act(() =>
            client.resources.protect({ params, payload: { protected: !resource.protected } })
          ).then(done)
        }
      />
      <Confirm
        {...dialog}
        open={asked === "abandon"}
        look="danger"
        title={`Abandon ${resource.name}`}
        says="It is forgotten here and nothing real is removed: servers and data that it has stay where they are, and nobody looks after them any more."
        action="Abandon it"
        ready={name === resource.name && reason.trim() !== ""}
        confirmed={() =>
          void act(() =>
            client.resources.abandon({ params, headers: idempotent(), payload: { confirm: name, reason } })
          ).then(done)
        }
      >
        {reasonField}
        <Field
          label="Name, to confirm"
          value={name}
          changed={setName}
          hint={`Type ${resource.name}.`}
          autoComplete="off"
        />
      </Confirm>
    </>
  )
}
