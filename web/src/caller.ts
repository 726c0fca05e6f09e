/** Who looks, at which organization, and in which role there. */
import { createContext, useContext } from "react"
import type { Role } from "#schemas/kind.ts"

export interface Organization {
  readonly id: string
  readonly slug: string
  readonly name: string
  readonly role: Role
}

export interface Caller {
  readonly userId: string
  readonly email: string
  readonly organizations: ReadonlyArray<Organization>
  /** The one in the address. */
  readonly org: Organization
}

export const CallerContext = createContext<Caller | undefined>(undefined)

export const useCaller = (): Caller => {
  const caller = useContext(CallerContext)
  if (caller === undefined) throw new Error("there is no caller here")
  return caller
}
