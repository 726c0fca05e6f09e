/**
 * Asking the servers of this machine, side by side. Each has a moment to answer; one that has not is left alone for a
 * minute, so that servers which hang hold up the others once at most.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Host } from "#src/infra/host/Host.ts"
import { readInfo } from "#src/infra/redis/info.ts"
import { RedisServers } from "#src/infra/redis/RedisServers.ts"
import { askPostgres, type PostgresAnswer } from "./postgres-question.ts"
import { redisSections } from "./redis-info.ts"
import type { ServerHere } from "./servers-here.ts"

export type Told =
  | { readonly program: "postgres"; readonly answer: PostgresAnswer }
  | { readonly program: "redis"; readonly info: ReadonlyMap<string, string> }

const atOnce = 16
const patience = "2 seconds"
const pauseMs = 60_000
/** All together; who has not been asked by then is asked at the next look. */
const allWithin = "10 seconds"

export const makeQuestions = Effect.gen(function* () {
  const { socketDir } = yield* Host
  const caches = yield* RedisServers
  /** Servers that did not answer in time, and until when they are left alone. */
  const silent = new Map<string, number>()

  /** One that refuses, or is not open yet, tells nothing; it has answered all the same. */
  const ask = ({ program, uid, port }: ServerHere): Effect.Effect<Told | undefined> =>
    program === "redis"
      ? readInfo(caches.endpoint(uid), redisSections).pipe(
          Effect.map((info): Told => ({ program, info })),
          Effect.orElseSucceed(() => undefined)
        )
      : port === undefined
        ? Effect.undefined
        : askPostgres({ socketDir, port }).pipe(
            Effect.map((answer): Told => ({ program, answer })),
            Effect.orElseSucceed(() => undefined)
          )

  return Effect.fnUntraced(function* (servers: ReadonlyArray<ServerHere>) {
    const now = yield* Clock.currentTimeMillis
    const told = new Map<string, Told>()
    for (const key of silent.keys()) if (!servers.some((one) => one.key === key)) silent.delete(key)
    const asked = servers.filter(({ key }) => (silent.get(key) ?? 0) <= now)
    yield* Effect.forEach(
      asked,
      (server) =>
        Effect.map(Effect.timeoutOption(ask(server), patience), (answer) => {
          if (Option.isNone(answer)) silent.set(server.key, now + pauseMs)
          else {
            silent.delete(server.key)
            if (answer.value !== undefined) told.set(server.key, answer.value)
          }
        }),
      { concurrency: atOnce, discard: true }
    ).pipe(Effect.timeoutOption(allWithin))
    return told
  })
})
