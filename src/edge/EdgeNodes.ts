/**
 * The nodes of the edge, as rows that they write themselves: who is at work, and whether they have taken up what was
 * stored. No process connects to a node. Who needs to know that a change is in force asks all of them through the store:
 * a question is a number, and a node writes it down once everything that was stored before is in place.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

/** No edge is at work, or none of them answers: nobody can say what is served. */
export class EdgeUnreachable extends Schema.TaggedError<EdgeUnreachable>()("EdgeUnreachable", {
  message: Schema.String
}) {}

/** The channel on which nodes hear of changes and questions. */
export const edgeChannel = "svc_edge"
/** How often a node writes that it is at work, and for how long that counts, in seconds. */
export const heartbeat = { everySeconds: 5, holdsSeconds: 15 }
/** How long somebody who asks waits for all nodes. */
const askMs = 5_000

export interface EdgeNode {
  readonly id: string
  /** Where its TLS is reached from here. */
  readonly address: string
  readonly httpsPort: number
}

export class EdgeNodes extends Context.Service<
  EdgeNodes,
  {
    /** Those that are at work. */
    readonly live: Effect.Effect<ReadonlyArray<EdgeNode>, StoreUnavailable>
    /**
     * Answers once every live node serves what was stored before, and after five seconds if at least one does.
     */
    readonly ask: Effect.Effect<void, EdgeUnreachable | StoreUnavailable>
    /** The same, and fails if one of them has not answered: for what must not be served by any as it was. */
    readonly askAll: Effect.Effect<void, EdgeUnreachable | StoreUnavailable>
    /** By a node: it is at work, or why it is not. */
    readonly beat: (
      node: EdgeNode & { readonly fault: string | undefined }
    ) => Effect.Effect<void, StoreUnavailable>
    /** By a node: it serves all that was stored before this question. */
    readonly answer: (id: string, question: bigint) => Effect.Effect<void, StoreUnavailable>
    /** By a node that stops its work. */
    readonly leave: (id: string) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/edge/EdgeNodes") {
  static readonly layer = Layer.effect(
    EdgeNodes,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db

      const answers = (question: string) =>
        Effect.map(
          repeatable(sql<{ readonly live: number; readonly done: number }>`
            select count(*)::int as live, (count(*) filter (where answered >= ${question}::bigint))::int as done
            from edge_node where alive_until > now()`),
          ([row]) => row ?? { live: 0, done: 0 }
        )

      const asking = (everyone: boolean) =>
        Effect.gen(function* () {
          const [row] = yield* repeatable(sql<{ readonly question: string }>`
            select question::text, pg_notify(${edgeChannel}, 'ask ' || question)
            from nextval('edge_question') question`)
          const question = row?.question ?? "0"
          const began = yield* Clock.currentTimeMillis
          for (let pause = 5; ; pause = Math.min(200, pause * 2)) {
            const { live, done } = yield* answers(question)
            if (live === 0)
              return yield* new EdgeUnreachable({ message: "No edge is at work: nothing can be served" })
            if (done === live) return
            if ((yield* Clock.currentTimeMillis) - began > askMs) {
              if (done > 0 && !everyone) return
              const who = done > 0 ? "Not every edge" : "No edge"
              return yield* new EdgeUnreachable({ message: `${who} answered within ${askMs / 1000} seconds` })
            }
            yield* Effect.sleep(pause)
          }
        }).pipe(Effect.withSpan("EdgeNodes.ask"))

      return EdgeNodes.of({
        live: repeatable(sql<EdgeNode>`
          select id, address, https_port as "httpsPort" from edge_node where alive_until > now() order by id`),
        ask: asking(false),
        askAll: asking(true),
        beat: ({ id, address, httpsPort, fault }) =>
          Effect.asVoid(
            repeatable(sql`
              insert into edge_node (id, address, https_port, alive_until, fault)
              values (${id}::uuid, ${address}, ${httpsPort},
                now() + ${fault === undefined ? heartbeat.holdsSeconds : 0} * interval '1 second', ${fault ?? null})
              on conflict (id) do update set address = excluded.address, https_port = excluded.https_port,
                alive_until = excluded.alive_until, fault = excluded.fault`)
          ),
        answer: (id, question) =>
          Effect.asVoid(
            repeatable(sql`
              update edge_node set answered = greatest(answered, ${String(question)}::bigint)
              where id = ${id}::uuid`)
          ),
        leave: (id) =>
          Effect.asVoid(
            repeatable(
              sql`update edge_node set alive_until = least(alive_until, now()) where id = ${id}::uuid`
            )
          )
      })
    })
  )
}
