/** Every moment that a database can be put back to, on a line; the one that is picked is branched from or restored. */
import { useState } from "react"
import { Backups, type BackupView, type RecoveryPoints } from "#src/backups/api.ts"
import { DatabaseBranches } from "#src/branches/api.ts"
import { Button } from "../parts/button.tsx"
import { inputClass } from "../parts/field.tsx"
import { Gated } from "../parts/gated.tsx"
import { At, localInput, useNowAt } from "../parts/time.tsx"
import { useCopies } from "./copies.tsx"
import { isWithin, placeOn, recoveryLine } from "./recovery-line.ts"
import type { ServiceProps } from "./service.tsx"

type Points = typeof RecoveryPoints.Type
type Backup = typeof BackupView.Type

export const Recovery = ({
  resource,
  project,
  points,
  again
}: ServiceProps & { readonly points: Points; readonly again: () => void }) => {
  const now = useNowAt(points.at)
  const { line, spans } = recoveryLine(points.windows, points.archiving.ok, now)
  const [picked, setPicked] = useState<number>()
  const { made, ask, dialogs } = useCopies({ resource, project, done: again })
  if (spans.length === 0)
    return (
      <p className="rounded-lg border border-line bg-panel px-3.5 py-6 text-soft">
        Nothing can be restored yet: the first backup is made as soon as the database is ready.
      </p>
    )
  const at = picked ?? spans.at(-1)?.to ?? now
  const possible = isWithin(spans, at)
  const moment = new Date(at).toISOString()
  return (
    <div className="rounded-lg border border-line bg-panel px-4 pt-3 pb-4">
      <div className="relative h-5">
        <p
          className="absolute -translate-x-1/2 font-semibold tabular-nums"
          style={{ left: `clamp(4.5rem, ${placeOn(line, at)}%, calc(100% - 4.5rem))` }}
        >
          <At at={moment} />
        </p>
      </div>
      <Line
        line={line}
        spans={spans}
        backups={points.backups}
        at={at}
        // A point of the line is a second or more: the end of it means the newest moment there is.
        pick={(next) => setPicked(next >= line.to - 1_000 ? undefined : next)}
      />
      <div className="flex justify-between gap-3 text-[13px] text-soft">
        <At at={new Date(line.from).toISOString()} />
        <span>now</span>
      </div>
      <div className="mt-3 flex flex-wrap items-end justify-between gap-3">
        <label className="text-[13px] text-soft">
          Exactly, in your time zone
          <input
            type="datetime-local"
            step={1}
            value={localInput(at)}
            min={localInput(line.from)}
            max={localInput(line.to)}
            onChange={(event) => {
              const next = Date.parse(event.target.value)
              if (!Number.isNaN(next)) setPicked(next)
            }}
            className={`${inputClass} mt-1 block`}
          />
        </label>
        <div className="flex flex-wrap gap-2">
          <Gated by={DatabaseBranches.endpoints.create} what="Branching">
            <Button
              disabled={!possible}
              onClick={() => ask({ what: "branch", from: { kind: "moment", at: moment } })}
            >
              Branch from here
            </Button>
          </Gated>
          <Gated by={Backups.endpoints.restore} what="Restoring">
            <Button
              look="main"
              disabled={!possible}
              onClick={() => ask({ what: "restore", from: { kind: "moment", at: moment } })}
            >
              Restore to here
            </Button>
          </Gated>
        </div>
      </div>
      <p className="mt-2 text-[13px] text-soft">
        {possible
          ? "Dots are backups; those with a ring were proven by a real restore. Between them any moment can be had while the bar is filled."
          : "The log has a gap there: pick a moment where the bar is filled."}
      </p>
      {made}
      {dialogs}
    </div>
  )
}

const Line = ({
  line,
  spans,
  backups,
  at,
  pick
}: {
  readonly line: { readonly from: number; readonly to: number }
  readonly spans: ReadonlyArray<{ readonly from: number; readonly to: number }>
  readonly backups: ReadonlyArray<Backup>
  readonly at: number
  readonly pick: (at: number) => void
}) => (
  <div className="relative my-1 h-12">
    <div
      aria-hidden="true"
      className="absolute inset-x-0 top-1/2 h-2 -translate-y-1/2 rounded-full bg-line"
    />
    {spans.map(({ from, to }) => (
      <div
        key={from}
        aria-hidden="true"
        className="absolute top-1/2 h-2 min-w-1 -translate-y-1/2 rounded-full bg-accent/45"
        style={{ left: `${placeOn(line, from)}%`, width: `${placeOn(line, to) - placeOn(line, from)}%` }}
      />
    ))}
    {backups.map(({ id, createdAt, recoverableFrom, lastProvenAt }) => (
      <span
        key={id}
        aria-hidden="true"
        className={`absolute top-1/2 size-2.5 -translate-1/2 rounded-full bg-accent ${lastProvenAt === null ? "" : "outline-2 outline-offset-2 outline-ok"}`}
        style={{ left: `${placeOn(line, Date.parse(recoverableFrom ?? createdAt))}%` }}
      />
    ))}
    <input
      type="range"
      aria-label="Moment"
      aria-valuetext={new Date(at).toLocaleString()}
      min={line.from}
      max={line.to}
      step={1_000}
      value={at}
      onChange={(event) => pick(event.target.valueAsNumber)}
      className="timeline absolute inset-0 h-full w-full"
    />
  </div>
)
