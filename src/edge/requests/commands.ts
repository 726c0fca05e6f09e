/** `svc requests`: who asked an environment for what, and how it was answered. */
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import { call } from "#src/cli/client.ts"
import { environment } from "#src/cli/flags.ts"
import { json, jsonLine, out, paint, table } from "#src/cli/output.ts"
import { itemsOf } from "#src/cli/pages.ts"
import { commandIn, inProject } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { type RequestView, statusClasses } from "./view.ts"

type Shown = (typeof RequestView)["Type"]

const columns = ["CAME", "STATUS", "METHOD", "HOST", "PATH", "TOOK", "IN", "OUT"]
const row = (request: Shown): ReadonlyArray<string> => [
  request.at,
  statusOf(request),
  request.method,
  request.host,
  request.path,
  `${request.durationMs} ms`,
  String(request.bytesIn),
  String(request.bytesOut)
]

const statusOf = ({ status, outcome }: Shown): string => {
  const shown = `${status ?? "none"}${outcome === "completed" ? "" : ` ${outcome}`}`
  return outcome !== "completed" || (status ?? 500) >= 500 ? paint("red", shown) : shown
}

const pause = "1 second"
/** Of more requests than this between two looks, the last ones are shown. */
const mostAtOnce = 500

export const requests = commandIn(inProject)(
  "requests",
  {
    environment,
    limit: Flag.Int("limit").pipe(Flag.withDescription("How many, from the newest"), Flag.withDefault(20)),
    follow: Flag.Boolean("follow").pipe(
      Flag.withAlias("f"),
      Flag.withDescription("Go on with those to come; each is a line"),
      Flag.withDefault(false)
    ),
    filter: {
      status: Flag.Literals("status", statusClasses).pipe(
        Flag.withDescription("Class of the status; none: nobody answered"),
        Flag.optional
      ),
      path: Flag.String("path").pipe(Flag.withDescription("What the path begins with"), Flag.optional),
      since: Flag.Date("since").pipe(
        Flag.withDescription("Came at this time or later, such as 2026-11-22T10:00:00Z"),
        Flag.map(DateTime.fromDateUnsafe),
        Flag.optional
      )
    }
  },
  ({ client: { asMember }, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      const environmentId = flags.environment
      /** The last ones, newest first, until one is not wanted any more. */
      const last = (most: number, wanted: (request: Shown) => boolean = () => true) =>
        Effect.map(
          itemsOf(
            (page) =>
              call(
                asMember.environments.requests({
                  params: { ...params, environmentId },
                  query: { ...given(flags.filter), ...page }
                })
              ),
            most,
            wanted
          ),
          (items) => items.filter(wanted)
        )
      const first = yield* last(flags.limit)
      if (!flags.follow) return yield* asJson ? json(first) : out(table(columns, first.map(row)))
      let shown = first
      let seen = 0
      for (;;) {
        seen = Math.max(seen, ...shown.map(({ id }) => Number(id)))
        for (const request of shown.toReversed())
          yield* asJson ? jsonLine(request) : out(row(request).join("  "))
        yield* Effect.sleep(pause)
        shown = yield* last(mostAtOnce, ({ id }) => Number(id) > seen)
      }
    })
).pipe(
  Command.withDescription("Requests to an environment, newest first: of the last day, at most 10,000"),
  Command.withExamples([
    { command: "svc requests shop --follow", description: "Watch what comes" },
    { command: "svc requests shop --status 5xx --path /api/", description: "What failed below /api/" }
  ])
)
