/** What a page can ask for before it does something, one of them at a time, and the doing of it. */
import type * as Effect from "effect/Effect"
import { useState } from "react"
import { useAct } from "../api/use-answer.ts"

/**
 * `asked` is the decision that stands open. `dialog` are the properties of its {@link Confirm}. `run` does it, closes the
 * dialog and hands the answer on; when it fails the dialog stays, with what was typed.
 */
export const useDecision = <Asked,>(done: () => void = () => {}) => {
  const { acting, failure, act, setFailure } = useAct()
  const [asked, setAsked] = useState<Asked>()
  const ask = (next: Asked | undefined) => {
    setFailure(undefined)
    setAsked(next)
  }
  const run = <A,>(operation: () => Effect.Effect<A, unknown>, then: (answer: A) => void = () => {}) =>
    void act(() => operation()).then((answer) => {
      if (answer === undefined) return
      setAsked(undefined)
      then(answer)
      done()
    })
  return {
    asked,
    ask,
    run,
    acting,
    /** Of what was done without a question. */
    failure: asked === undefined ? failure : undefined,
    dialog: { busy: acting, failure, close: () => setAsked(undefined) }
  }
}
