/** A plan as it is reviewed: changes grouped by what they do, with reasons and what each requires. */
import type { Role } from "#schemas/kind.ts"
import { Panel } from "../parts/panel.tsx"
import { At } from "../parts/time.tsx"
import { type Change, groupsOf, linesOfPatch, type Plan } from "./plan-groups.ts"

const marks: Readonly<Record<Change["action"], string>> = {
  create: "rounded-full bg-ok",
  update: "rounded-xs rotate-45 bg-wait",
  replace: "rounded-xs bg-bad",
  delete: "rounded-xs bg-bad",
  noop: "rounded-full border-2 border-idle"
}
const verbs: Readonly<Record<Change["action"], string>> = {
  create: "Create",
  update: "Update",
  replace: "Replace",
  delete: "Delete",
  noop: "Keep"
}
/** Of a plan with thousands of changes, so many are drawn; the summary counts all. */
const mostDrawn = 300

export const PlanReview = ({ plan, role }: { readonly plan: Plan; readonly role: Role }) => (
  <>
    <Located title="It cannot be applied" of={plan.blockers} bad />
    <Located title="Worth a look" of={plan.warnings} />
    {groupsOf(plan).map(({ title, changes }) => (
      <section key={title}>
        <h2>
          {title} <span className="font-normal text-faint tabular-nums">{changes.length}</span>
        </h2>
        <Panel>
          {changes.slice(0, mostDrawn).map((change) => (
            <ChangeView key={change.address} change={change} role={role} />
          ))}
          {changes.length > mostDrawn && (
            <p className="border-t border-line px-3.5 py-2 text-soft">
              and {changes.length - mostDrawn} more
            </p>
          )}
        </Panel>
      </section>
    ))}
    {plan.drift.length > 0 && (
      <section>
        <h2>Drifted: repaired whatever is applied</h2>
        <Panel>
          {plan.drift.map(({ address, differences, observedAt }) => (
            <div key={address} className="border-t border-line px-3.5 py-2.5 first:border-t-0">
              <b className="font-semibold wrap-anywhere">{address}</b>{" "}
              {observedAt !== null && (
                <span className="text-faint">
                  seen <At at={observedAt} />
                </span>
              )}
              {differences.map(({ field, message }) => (
                <p key={field} className="text-soft wrap-anywhere">
                  <code className="font-mono text-[12.5px]">{field}</code> {message}
                </p>
              ))}
            </div>
          ))}
        </Panel>
      </section>
    )}
  </>
)

const Pill = ({ children, bad = false }: { readonly children: string; readonly bad?: boolean }) => (
  <span
    className={`rounded-full border px-2 text-xs whitespace-nowrap ${bad ? "border-bad/50 text-bad" : "border-line text-soft"}`}
  >
    {children}
  </span>
)

const ChangeView = ({ change, role }: { readonly change: Change; readonly role: Role }) => {
  const { action, risk, requires, reasons } = change
  const said = reasons.filter(({ code }) => code !== "missing" && code !== "different")
  return (
    <div className="border-t border-line first:border-t-0">
      <div className="flex flex-wrap items-baseline gap-x-3 gap-y-1 px-3.5 py-2.5">
        <span className="inline-flex w-20 items-center gap-2 whitespace-nowrap">
          <span aria-hidden="true" className={`inline-block size-2 flex-none ${marks[action]}`} />
          {verbs[action]}
        </span>
        <b className="min-w-0 font-semibold wrap-anywhere" dir="auto">
          {change.address}
        </b>
        <span className="ml-auto flex flex-wrap gap-1">
          {requires.role === "owner" && <Pill bad={role !== "owner"}>takes an owner</Pill>}
          {risk !== "write" && risk !== "read" && <Pill bad>{risk}</Pill>}
        </span>
        {said.length > 0 && (
          <div className="basis-full text-soft">
            {said.map(({ code, message }) => (
              <p key={`${code} ${message}`} className="wrap-anywhere" dir="auto">
                {message}
              </p>
            ))}
          </div>
        )}
      </div>
      {action !== "delete" && (
        <pre className="overflow-x-auto font-mono text-[12.5px] leading-6">
          {linesOfPatch(change.patch).map(({ sign, text }, index) => (
            <div key={index} className={`px-3.5 ${sign === "+" ? "bg-add" : "bg-del"}`}>
              {sign} {text.length > 500 ? `${text.slice(0, 500)} …` : text}
            </div>
          ))}
        </pre>
      )}
    </div>
  )
}

const Located = ({
  title,
  of,
  bad = false
}: {
  readonly title: string
  readonly of: Plan["warnings"]
  readonly bad?: boolean
}) =>
  of.length === 0 ? null : (
    <section>
      <h2>{title}</h2>
      <ul
        className={`space-y-1 rounded-lg border px-3.5 py-2.5 ${bad ? "border-bad/50 bg-del" : "border-line bg-panel"}`}
      >
        {of.map(({ pointer, message, line }) => (
          <li key={`${pointer} ${message}`} className="wrap-anywhere">
            {line !== undefined && <span className="text-soft">line {line}: </span>}
            <code className="font-mono text-[12.5px]">{pointer}</code> <span dir="auto">{message}</span>
          </li>
        ))}
      </ul>
    </section>
  )
