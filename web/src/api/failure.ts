/** Why a request did not do what was asked, as people read it: what happened, and what to do next. */

export interface Fault {
  readonly pointer: string
  readonly message: string
  readonly line?: number
  readonly column?: number
}

interface Problem {
  /** HTTP status; 0: there was no answer. */
  readonly status: number
  readonly detail: string
  readonly code?: string
  readonly requestId?: string
  readonly errors?: ReadonlyArray<Fault>
  readonly addresses?: ReadonlyArray<string>
}

export class Failure extends Error {
  readonly problem: Problem
  constructor(problem: Problem) {
    super(sentence(problem))
    this.problem = problem
  }
}

export const failureOf = (problem: Problem): Failure => new Failure(problem)

/** What to do about it, where the answer's own sentence does not say. */
const advice: Readonly<Record<number, string>> = {
  0: "The control plane cannot be reached. Your input is kept; try again.",
  401: "Your session has ended. Sign in again; what you typed stays here if you do so in another tab.",
  402: "Billing of the organization is not active, or its budget is used up: an owner can change that.",
  403: "Your role does not allow this. Ask an admin or an owner of the organization.",
  404: "It is not there any more, or you may not see it. Go back to the list.",
  409: "Something else changed first. Look at the present state and try again.",
  412: "It was changed since you opened it. Look at the present state and try again.",
  413: "That is too large to send: at most 4 MB.",
  429: "Too many requests. Wait a minute and try again.",
  500: "The control plane failed. Its log has the cause under the request's id.",
  502: "What this needs does not answer. Nothing was changed; try again later.",
  503: "The control plane is busy or starts. Try again in a few seconds."
}

/** About a status that no operation has: it comes from somebody in between. */
const unknown =
  "The answer did not come from the control plane. Look at what stands before it, and try again."

const ended = (text: string) => (/[.!?]$/.test(text) ? text : `${text}.`)

const sentence = ({ status, detail, requestId }: Problem): string => {
  const said = detail === "" ? "" : ended(detail)
  const next = advice[status] ?? (said === "" ? unknown : "")
  const id = status >= 500 && requestId !== undefined ? ` (request ${requestId})` : ""
  return `${[said, next].filter((part) => part !== "").join(" ")}${id}`
}
