/** What a page can ask for before it does something, one of them at a time, and the doing of it. */
import type * as Effect from "effect/Effect"
import { useRef, useState } from "react"
import { idempotent } from "../api/call.ts"
import type { Failure } from "../api/failure.ts"
import { useAct } from "../api/use-answer.ts"

/** Whether it was done all the same is not known: the answer may have been lost on the way. */
const isUnknown = ({ problem: { status } }: Failure) => status === 0 || status >= 500

type Headers = ReturnType<typeof idempotent>

/**
 * `asked` is the decision that stands open, with what was shown when it was asked for. `dialog` are the properties of its
 * {@link Confirm}. `run` does it, closes the dialog and hands the answer on; when it fails the dialog stays, with what was
 * typed. Doing it again after a lost answer has the same key, so that it is done once.
 */
export const useDecision = <Asked,>(done: () => void = () => {}) => {
  const { acting, failure, act, setFailure } = useAct()
  const [asked, setAsked] = useState<Asked>()
  /** Of the decision that stands open: another may be asked while the last one is still being done. */
  const open = useRef<{ headers: Headers | undefined }>({ headers: undefined })
  const show = (next: Asked | undefined) => {
    open.current = { headers: undefined }
    setAsked(next)
  }
  const ask = (next: Asked | undefined) => {
    setFailure(undefined)
    show(next)
  }
  const run = <A,>(
    operation: (headers: Headers) => Effect.Effect<A, unknown>,
    then: (answer: A) => void = () => {}
  ) => {
    const own = open.current
    own.headers ??= idempotent()
    const { headers } = own
    void act(
      () => operation(headers),
      (failed) => {
        if (!isUnknown(failed)) own.headers = undefined
      }
    ).then((answer) => {
      if (answer === undefined) return
      if (open.current === own) show(undefined)
      then(answer)
      done()
    })
  }
  return {
    asked,
    ask,
    run,
    acting,
    /** Of what was done without a question. */
    failure: asked === undefined ? failure : undefined,
    dialog: { busy: acting, failure, close: () => show(undefined) }
  }
}
