import { type InputHTMLAttributes, useId } from "react"

type Props = InputHTMLAttributes<HTMLInputElement> & {
  readonly label: string
  readonly hint?: string
  readonly changed: (value: string) => void
}

export const inputClass =
  "w-full rounded-md border border-faint/60 bg-bg px-2.5 py-1.5 text-ink placeholder:text-faint"

export const Field = ({ label, hint, changed, ...rest }: Props) => {
  const id = useId()
  return (
    <div>
      <label htmlFor={id} className="block font-medium">
        {label}
      </label>
      <input
        {...rest}
        id={id}
        className={`mt-1 ${inputClass}`}
        aria-describedby={hint === undefined ? undefined : `${id}-hint`}
        onChange={(event) => changed(event.target.value)}
      />
      {hint !== undefined && (
        <p id={`${id}-hint`} className="mt-1 text-xs text-faint">
          {hint}
        </p>
      )}
    </div>
  )
}
