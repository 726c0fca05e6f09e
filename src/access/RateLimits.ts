/**
 * Token buckets that hold across processes without a round trip for every request: each process draws tokens from
 * the shared bucket in Postgres a handful at a time and hands them out from memory. What a process holds when it
 * ends is forgone, which errs on the strict side.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store/errors.ts"

export interface Taken {
  readonly allowed: boolean
  readonly limit: number
  /** Tokens that this process still holds; others may hold more. */
  readonly remaining: number
  /** Seconds until a token is there again. */
  readonly retryAfter: number
}

interface Held {
  tokens: number
  /** Until then the shared bucket is known to be empty. */
  emptyUntil: number
  usedAt: number
}

/** Share of a bucket drawn at once. */
const chunk = 20
/** Buckets kept in memory; the ones unused for longest go first. */
const mostHeld = 10_000

export class RateLimits extends Context.Service<
  RateLimits,
  {
    /** Takes one token of `bucket`, which refills to `perMinute` within a minute. */
    readonly take: (bucket: string, perMinute: number) => Effect.Effect<Taken, StoreUnavailable>
  }
>()("svc/access/RateLimits") {
  static readonly layer = Layer.effect(
    RateLimits,
    Effect.gen(function* () {
      const { engine: sql } = yield* Db
      const held = new Map<string, Held>()

      const draw = Effect.fnUntraced(function* (bucket: string, perMinute: number) {
        const wanted = Math.max(1, Math.min(chunk, Math.floor(perMinute / 10)))
        const [row] = yield* repeatable(sql<{ readonly granted: number; readonly left: number }>`
          with filled as (
            insert into rate_limit as r (bucket, tokens, updated_at) values (${bucket}, ${perMinute}::float8, now())
            on conflict (bucket) do update set
              tokens = least(${perMinute}::float8,
                r.tokens + extract(epoch from now() - r.updated_at) * ${perMinute}::float8 / 60),
              updated_at = now()
            returning bucket, tokens
          )
          select least(floor(tokens), ${wanted}::float8)::int as granted, tokens::float8 as left from filled`)
        const granted = row?.granted ?? 0
        if (granted > 0) {
          yield* repeatable(
            sql`update rate_limit set tokens = tokens - ${granted}::int where bucket = ${bucket}`
          )
        }
        return { granted, missing: granted > 0 ? 0 : 1 - (row?.left ?? 0) }
      })

      return RateLimits.of({
        take: Effect.fnUntraced(function* (bucket, perMinute) {
          const now = yield* Clock.currentTimeMillis
          let own = held.get(bucket)
          if (own === undefined) {
            own = { tokens: 0, emptyUntil: 0, usedAt: now }
            held.set(bucket, own)
            if (held.size > mostHeld) {
              const [oldest] = [...held].reduce((a, b) => (a[1].usedAt <= b[1].usedAt ? a : b))
              held.delete(oldest)
            }
          }
          own.usedAt = now
          if (own.tokens < 1 && now >= own.emptyUntil) {
            const { granted, missing } = yield* draw(bucket, perMinute)
            own.tokens += granted
            if (granted === 0) own.emptyUntil = now + Math.ceil((missing * 60_000) / perMinute)
          }
          const allowed = own.tokens >= 1
          if (allowed) own.tokens -= 1
          return {
            allowed,
            limit: perMinute,
            remaining: Math.floor(own.tokens),
            retryAfter: allowed ? 0 : Math.max(1, Math.ceil((own.emptyUntil - now) / 1000))
          }
        })
      })
    })
  )
}
