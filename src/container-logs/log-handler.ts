/** Handlers of operations that show a log: a page of it, or all of it as it comes. */
import * as Effect from "effect/Effect"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { fromStore, invalid, type Problem } from "#src/api/problem.ts"
import { makeStreams } from "#src/api/streams.ts"
import { entriesOf, followed, type LogEntry } from "./log-answers.ts"
import { LogPage } from "./log-page.ts"
import type { LogReader, LogRef } from "./log-store.ts"
import { matcherOf, searched } from "./search.ts"

const defaultLogPage = 100

interface LogRequest {
  readonly headers: { readonly "last-event-id"?: string }
  readonly query: {
    readonly limit?: number
    readonly cursor?: string
    readonly follow?: boolean
    readonly search?: string
  }
}

export const makeLogHandler = Effect.gen(function* () {
  const cursors = yield* Cursors
  const streams = yield* makeStreams
  /** `subject`: what the log is of, as it is told at its end. */
  return Effect.fnUntraced(function* (
    { query, headers }: LogRequest,
    ref: LogRef,
    read: LogReader,
    subject: Effect.Effect<object, Problem>
  ) {
    const scope = yield* RequestScope
    const list = `logs ${ref.uid}`
    const [position = "0"] = (yield* cursors.decode(list, query.cursor)) ?? []
    if (query.follow === true) {
      const last = headers["last-event-id"]
      if (last !== undefined && !/^\d{1,15}-\d{1,15}$/.test(last))
        return yield* invalid([
          { pointer: "/headers/last-event-id", message: "is not an entry of this log; start without one" }
        ])
      const from = last === undefined ? position : (last.split("-")[1] ?? "0")
      const counted = yield* streams(scope)
      return followed(ref, from, read, subject, scope.stillHolds, counted, matcherOf(query.search))
    }
    const limit = query.limit ?? defaultLogPage
    const pageOf = (items: ReadonlyArray<LogEntry>, next: string | undefined) =>
      answer(LogPage, { items, nextCursor: next === undefined ? null : cursors.encode(list, [next]) })
    if (query.search !== undefined) {
      const found = yield* Effect.mapError(searched(read, ref, position, limit, query.search), fromStore)
      return pageOf(found.items, found.next)
    }
    const { pieces } = yield* Effect.mapError(read(ref, position, limit + 1), fromStore)
    return pageOf(entriesOf(pieces.slice(0, limit)), pieces[limit]?.position)
  })
})
