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
 * same key share an answer.
 */
export const batched = Effect.fnUntraced(function* <Q, A, E>(
  keyOf: (question: Q) => string,
  look: (questions: ReadonlyArray<Q>) => Effect.Effect<ReadonlyArray<A>, E>
) {
  const run = yield* FiberSet.makeRuntime<never>()
  const waiting = new Map<string, Waiting<Q, A, E>>()
  let looking = false

  const begin = () => {
    const batch: Array<Waiting<Q, A, E>> = []
    for (const [key, one] of waiting) {
      if (batch.length === mostQuestions) break
      batch.push(one)
      waiting.delete(key)
    }
    looking = true
    const settle = (exit: Exit.Exit<ReadonlyArray<A>, E>) => {
      looking = false
      if (waiting.size > 0) begin()
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
      const key = keyOf(question)
      const same = waiting.get(key)
      if (same !== undefined) {
        same.resumes.push(resume)
        return
      }
      waiting.set(key, { question, resumes: [resume] })
      if (!looking) begin()
    })
})
