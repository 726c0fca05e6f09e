/** How executions are read by `svc`, and followed while they run. */
import { stripVTControlCharacters } from "node:util"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { Invocation } from "#src/cli/invocation.ts"
import { visible } from "#src/cli/visible.ts"

const one = (orgId: string, projectId: string, executionId: string) => ({
  orgId,
  projectId,
  executionId
})

export type Shown = Effect.Success<ReturnType<typeof read>>
export const read = Effect.fnUntraced(function* (projectId: string, executionId: string) {
  const { asMember, org } = yield* Client
  return yield* call(asMember.executions.get({ params: one(org, projectId, executionId) }))
})
export const hasEnded = ({ finishedAt }: Shown) => finishedAt !== null

export const outcome = ({ status, exitCode, error }: Shown) =>
  `${status}${exitCode === null ? "" : `, exit code ${exitCode}`}${error === null ? "" : `: ${error}`}`

/** Where printing goes on: on this page of the log, after so many of its entries. */
interface Printed {
  readonly page: string | undefined
  readonly entries: number
}
export const nothing: Printed = { page: undefined, entries: 0 }

/**
 * A terminal is not to be steered by what somebody's program prints: its colours and movements are left out, and what
 * else is no text is shown as an escape. A pipe or a file gets every byte.
 */
export const onTerminal = (text: string) => visible(stripVTControlCharacters(text.replaceAll("\r\n", "\n")))

/** Writes what came since as it was printed. */
export const print = Effect.fnUntraced(function* (projectId: string, executionId: string, from: Printed) {
  const { asMember, org } = yield* Client
  const { stdout, stderr } = yield* Invocation
  let { page, entries } = from
  for (;;) {
    const { items, nextCursor } = yield* call(
      asMember.executions.logs({
        params: one(org, projectId, executionId),
        headers: {},
        query: { limit: 1000, ...(page === undefined ? {} : { cursor: page }) }
      })
    )
    for (const { stream, text } of items.slice(entries)) {
      const target = stream === "stdout" ? stdout : stderr
      const safe = target.isTTY === true ? onTerminal(text) : text
      yield* Effect.sync(() => void target.write(safe))
    }
    if (nextCursor === null) return { page, entries: items.length }
    page = nextCursor
    entries = 0
  }
})

/** Until it has ended, with what it prints meanwhile unless that would be in the way. */
export const follow = Effect.fnUntraced(function* (
  projectId: string,
  executionId: string,
  timeoutSeconds: number,
  quiet = false
) {
  const deadline = (yield* Clock.currentTimeMillis) + timeoutSeconds * 1000
  let seen: Printed = nothing
  for (;;) {
    const shown = yield* read(projectId, executionId)
    const complete = hasEnded(shown) && shown.cleanupStatus !== "pending"
    if (!quiet) seen = yield* print(projectId, executionId, seen)
    if (complete) return shown
    if ((yield* Clock.currentTimeMillis) > deadline)
      return yield* failure(
        `The execution ${executionId} goes on; svc executions logs -f shows it`,
        exitCodes.timeout
      )
    yield* Effect.sleep("400 millis")
  }
})
