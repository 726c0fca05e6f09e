/**
 * An operation's answer in a component: asked for when its place changes and when the
 * control plane comes back, and ended when nobody looks at it any more.
 */

import type * as Effect from "effect/Effect"
import { useCallback, useEffect, useRef, useState } from "react"
import { useReconnects } from "../live/resources.ts"
import { call } from "./call.ts"
import { Failure, failureOf } from "./failure.ts"

export interface Answer<A> {
  /** The last one there was, also while another is asked for and when that fails. */
  readonly value: A | undefined
  readonly failure: Failure | undefined
  readonly asking: boolean
  readonly again: () => void
}

interface Held<A> {
  readonly place: string
  readonly value: A | undefined
  readonly failure: Failure | undefined
  readonly asking: boolean
}

/**
 * `place` says what is asked about: with another place the old answer is dropped at once. `version` says when to ask
 * again: the old answer stays until the new one is there.
 */
export const useAnswer = <A>(
  place: string,
  operation: () => Effect.Effect<A, unknown>,
  version: string | number = ""
): Answer<A> => {
  const nothing: Held<A> = { place, value: undefined, failure: undefined, asking: true }
  const [held, setHeld] = useState<Held<A>>(nothing)
  const [repeats, setRepeats] = useState(0)
  const reconnects = useReconnects()
  const latest = useRef(operation)
  latest.current = operation

  useEffect(() => {
    const ending = new AbortController()
    setHeld((before) => (before.place === place ? { ...before, asking: true } : { ...nothing }))
    call(latest.current(), ending.signal).then(
      (value) => {
        if (!ending.signal.aborted) setHeld({ place, value, failure: undefined, asking: false })
      },
      (error: unknown) => {
        if (ending.signal.aborted) return
        const failure = error instanceof Failure ? error : failureOf({ status: 0, detail: "" })
        setHeld((before) => ({ ...before, place, failure, asking: false }))
      }
    )
    return () => ending.abort()
  }, [place, version, repeats, reconnects])

  const again = useCallback(() => setRepeats((times) => times + 1), [])
  const current = held.place === place ? held : nothing
  return { value: current.value, failure: current.failure, asking: current.asking, again }
}

/** Something that a button does: whether it is under way, and why it failed. */
export const useAct = () => {
  const [acting, setActing] = useState(false)
  const [failure, setFailure] = useState<Failure | undefined>(undefined)
  const act = useCallback(
    async <A>(
      operation: () => Effect.Effect<A, unknown>,
      onFailure: (failed: Failure) => void = () => {}
    ) => {
      setActing(true)
      setFailure(undefined)
      try {
        return await call(operation())
      } catch (error) {
        const failed = error instanceof Failure ? error : failureOf({ status: 0, detail: "" })
        setFailure(failed)
        onFailure(failed)
        return undefined
      } finally {
        setActing(false)
      }
    },
    []
  )
  return { acting, failure, act, setFailure }
}
