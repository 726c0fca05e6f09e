/** An alert: whether it fires and by what, what became of it, and that somebody sees to it. */
import { useState } from "react"
import { Alerts } from "#src/alerts/api.ts"
import { services } from "../api/services.ts"
import { useAct, useAnswer } from "../api/use-answer.ts"
import { useCaller } from "../caller.ts"
import { Answered } from "../parts/answered.tsx"
import { Button } from "../parts/button.tsx"
import { Confirm } from "../parts/confirm.tsx"
import { Field } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { Panel } from "../parts/panel.tsx"
import { Problem } from "../parts/problem.tsx"
import { Table } from "../parts/table.tsx"
import { Ago, At } from "../parts/time.tsx"
import { useEvery } from "./every.ts"
import type { ServiceProps } from "./service.tsx"
import { Tile, Tiles } from "./tiles.tsx"

export const AlertPanel = ({ resource, project }: ServiceProps) => {
  const { org } = useCaller()
  const params = { orgId: org.slug, projectId: project, alertId: resource.uid }
  const moment = useEvery(10_000)
  const alert = useAnswer(`alert ${resource.uid}`, () => services.alerts.get({ params }), moment)
  const history = useAnswer(
    `history ${resource.uid}`,
    () => services.alerts.history({ params, query: { limit: 20 } }),
    moment
  )
  const { acting, failure, act } = useAct()
  const [asked, setAsked] = useState(false)
  const [hours, setHours] = useState("1")
  const silence = (durationSeconds: number) =>
    act(() => services.alerts.silence({ params, payload: { durationSeconds } })).then((answer) => {
      if (answer === undefined) return
      setAsked(false)
      alert.again()
    })
  const seconds = Math.round(Number(hours) * 3_600)
  return (
    <>
      <h2>State</h2>
      <Answered of={alert} what="the alert">
        {({ body: { state, since, measured, threshold, incident, silence: silenced, unavailable } }) => (
          <>
            <Tiles>
              <Tile value={state} says="state" bad={state === "firing"} />
              <Tile value={since === null ? "–" : <Ago at={since} />} says="for" />
              <Tile value={measured?.value ?? "–"} says="measured now, the worst" />
              <Tile value={threshold} says="threshold" />
            </Tiles>
            {unavailable !== null && <p className="mt-2 text-wait">{unavailable}</p>}
            {silenced !== null && (
              <p className="mt-2 text-soft" dir="auto">
                Silenced until <At at={silenced.until} /> {silenced.reason}
              </p>
            )}
            <div className="mt-3 flex flex-wrap items-center gap-2">
              {incident !== null && incident.acknowledgedAt === null && (
                <Gated by={Alerts.endpoints.acknowledge} what="Acknowledging">
                  <Button
                    busy={acting}
                    title="Tells others that somebody sees to it; it is not sent again meanwhile."
                    onClick={() => void act(() => services.alerts.acknowledge({ params })).then(alert.again)}
                  >
                    Acknowledge
                  </Button>
                </Gated>
              )}
              <Gated by={Alerts.endpoints.silence} what="Silencing">
                {silenced === null ? (
                  <Button onClick={() => setAsked(true)}>Silence</Button>
                ) : (
                  <Button busy={acting} onClick={() => void silence(0)}>
                    End the silence
                  </Button>
                )}
              </Gated>
            </div>
          </>
        )}
      </Answered>
      {failure !== undefined && !asked && <Problem failure={failure} />}
      <Confirm
        open={asked}
        title={`Silence ${resource.name}`}
        says="Nobody is told that it fires until the time is over. It goes on measuring, and its history shows what happened."
        action="Silence it"
        busy={acting}
        failure={failure}
        ready={seconds > 0 && seconds <= 90 * 86_400}
        close={() => setAsked(false)}
        confirmed={() => void silence(seconds)}
      >
        <Field label="Hours" inputMode="decimal" value={hours} changed={setHours} hint="At most 2,160." />
      </Confirm>
      <h2>History</h2>
      <Panel>
        <Answered of={history} what="its history">
          {({ items }) => (
            <Table
              of={items}
              keyOf={({ id }) => id}
              empty="Nothing has become of it yet."
              columns={[
                { head: "When", cell: ({ at }) => <At at={at} /> },
                { head: "What", cell: ({ change }) => change },
                { head: "Value", look: "number", cell: ({ value }) => value ?? "–" },
                { head: "Why", look: "soft", cell: ({ reason }) => reason }
              ]}
            />
          )}
        </Answered>
      </Panel>
    </>
  )
}
