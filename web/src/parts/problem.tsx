/** Why something did not work, and what to do next. */

import type { Failure } from "../api/failure.ts"
import { signIn } from "../api/place.ts"
import { Button } from "./button.tsx"

export const Problem = ({
  failure,
  again
}: {
  readonly failure: Failure
  readonly again?: (() => void) | undefined
}) => {
  const { status, errors = [], addresses = [] } = failure.problem
  return (
    <div role="alert" className="rounded-lg border border-bad/50 bg-del px-3.5 py-3">
      <p className="wrap-anywhere">{failure.message}</p>
      {errors.length > 0 && (
        <ul className="mt-2 list-disc space-y-1 pl-5">
          {errors.slice(0, 50).map(({ pointer, message, line }) => (
            <li key={`${pointer} ${message}`} className="wrap-anywhere">
              {line !== undefined && <span className="text-soft">line {line}: </span>}
              <code className="font-mono text-[12.5px]">{pointer}</code> {message}
            </li>
          ))}
          {errors.length > 50 && <li>and {errors.length - 50} more</li>}
        </ul>
      )}
      {addresses.length > 0 && (
        <p className="mt-2 font-mono text-[12.5px] wrap-anywhere">{addresses.slice(0, 20).join(", ")}</p>
      )}
      {status === 401 ? (
        <Button className="mt-3" onClick={signIn}>
          Sign in
        </Button>
      ) : (
        again !== undefined && (
          <Button className="mt-3" onClick={again}>
            Try again
          </Button>
        )
      )}
    </div>
  )
}

export const Loading = ({ what }: { readonly what: string }) => (
  <p role="status" className="px-3.5 py-6 text-soft">
    Loading {what} …
  </p>
)
