/** One of a few, and yes or no. */
import { useId } from "react"
import { inputClass } from "./field.tsx"

export const Choice = <A extends string>({
  label,
  value,
  of,
  changed,
  hint
}: {
  readonly label: string
  readonly value: A
  /** Each with what people read. */
  readonly of: ReadonlyArray<readonly [value: A, name: string]>
  readonly changed: (value: A) => void
  readonly hint?: string
}) => {
  const id = useId()
  return (
    <div>
      <label htmlFor={id} className="block font-medium">
        {label}
      </label>
      <select
        id={id}
        value={value}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
        onChange={(event) => {
          const chosen = of.find(([one]) => one === event.target.value)
          if (chosen !== undefined) changed(chosen[0])
        }}
        className={`mt-1 ${inputClass}`}
      >
        {of.map(([one, name]) => (
          <option key={one} value={one}>
            {name}
          </option>
        ))}
      </select>
      {hint !== undefined && (
        <p id={`${id}-hint`} className="mt-1 text-xs text-faint">
          {hint}
        </p>
      )}
    </div>
  )
}

export const Tick = ({
  label,
  checked,
  changed
}: {
  readonly label: string
  readonly checked: boolean
  readonly changed: (checked: boolean) => void
}) => (
  <label className="flex items-start gap-2">
    <input
      type="checkbox"
      className="mt-0.5 size-4 flex-none accent-accent"
      checked={checked}
      onChange={(event) => changed(event.target.checked)}
    />
    <span>{label}</span>
  </label>
)
