/** What an operation answered, or why it did not: never nothing. */
import type { ReactNode } from "react"
import type { Answer } from "../api/use-answer.ts"
import { Loading, Problem } from "./problem.tsx"

export const Answered = <A,>({
  of,
  what,
  children
}: {
  readonly of: Answer<A>
  readonly what: string
  readonly children: (value: A) => ReactNode
}) => (
  <>
    {of.failure !== undefined && <Problem failure={of.failure} again={of.again} />}
    {of.value !== undefined ? children(of.value) : of.failure === undefined && <Loading what={what} />}
  </>
)
