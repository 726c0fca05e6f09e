/** What the caller's role does not allow is not offered, and says which role it takes. */
import type * as Context from "effect/Context"
import type { ReactNode } from "react"
import { takesRole } from "../api/roles.ts"
import { useCaller } from "../caller.ts"

export const Gated = ({
  by,
  what,
  children
}: {
  /** The operation behind it. */
  readonly by: { readonly annotations: Context.Context<never> }
  readonly what: string
  readonly children: ReactNode
}) => {
  const needed = takesRole(by, useCaller().org.role)
  return needed === undefined ? (
    children
  ) : (
    <span className="text-xs text-faint">
      {what} takes the role {needed}
    </span>
  )
}
