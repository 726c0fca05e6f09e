/**
 * Answers many questions with one look, and never from memory: a question that comes while a look is under way waits
 * for one that begins after it. So an answer is never older than its question, and under load looks get larger
 * instead of more.
 */
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as FiberSet from "effect/FiberSet"

interface Waiting<Q, A, E> {
  readonly question: Q
  readonly resumes: Array<(answer: Effect.Effect<A, E>) => void>
}

const mostQuestions = 200

/**
 * `look` answers in the order of its questions, and in bounded time: the next ones wait for it. Questions with the
 * same key share an answer. A look takes questions of one lane, and lanes do not wait for each other.
 */
export const batched = Effect.fnUntraced(function* <Q, A, E>(
  keyOf: (question: Q) => string,
  look: (questions: ReadonlyArray<Q>) => Effect.Effect<ReadonlyArray<A>, E>,
  laneOf: (question: Q) => string = () => ""
) {
  const run = yield* FiberSet.makeRuntime<never>()
  /** Questions that wait for the look under way, by lane: one that is not here is idle. */
  const lanes = new Map<string, Map<string, Waiting<Q, A, E>>>()

  const begin = (lane: string, waiting: Map<string, Waiting<Q, A, E>>) => {
    const batch: Array<Waiting<Q, A, E>> = []
    for (const [key, one] of waiting) {
      if (batch.length === mostQuestions) break
      batch.push(one)
      waiting.delete(key)
    }
    const settle = (exit: Exit.Exit<ReadonlyArray<A>, E>) => {
      if (waiting.size > 0) begin(lane, waiting)
      else lanes.delete(lane)
      for (const [i, { resumes }] of batch.entries()) {
        const answer = Effect.flatMap(exit, (answers) => {
          const own = answers[i]
          return own === undefined
            ? Effect.die(new Error("a look left a question open"))
            : Effect.succeed(own)
        })
        for (const resume of resumes) resume(answer)
      }
    }
    run(Effect.onExit(look(batch.map(({ question }) => question)), (exit) => Effect.sync(() => settle(exit))))
  }

  return (question: Q): Effect.Effect<A, E> =>
    Effect.callback<A, E>((resume) => {
      const [key, lane] = [keyOf(question), laneOf(question)]
      const busy = lanes.get(lane)
      const waiting = busy ?? new Map<string, Waiting<Q, A, E>>()
      const same = waiting.get(key)
      if (same !== undefined) {
        same.resumes.push(resume)
        return
      }
      waiting.set(key, { question, resumes: [resume] })
      if (busy !== undefined) return
      lanes.set(lane, waiting)
      begin(lane, waiting)
    })
})
