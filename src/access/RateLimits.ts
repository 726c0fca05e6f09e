/**
 * Token buckets that hold across processes without a round trip for every request: each process draws tokens from
 * the shared bucket in Postgres some at a time and hands them out from memory. What a process holds when it
 * ends is forgone, which errs on the strict side.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Semaphore from "effect/Semaphore"
import { Db, repeatable } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface Taken {
  readonly allowed: boolean
  readonly limit: number
  /** Tokens left, as far as this process knows. */
  readonly remaining: number
  /** Seconds until a token is there again. */
  readonly retryAfter: number
}

interface Held {
  tokens: number
  /** What the shared bucket still had when this process last drew from it. */
  shared: number
  /** Until then the shared bucket is known to be empty. */
  emptyUntil: number
  usedAt: number
  /** One draw at a time, or many requests at once would hoard what other processes need. */
  readonly drawing: Semaphore.Semaphore
}

/**
 * Tokens drawn at once: what a second refills, since whoever makes thousands of requests would else wait for a draw after
 * every few of them; no fewer than a handful, and no more than a tenth of the bucket.
 */
const share = (perMinute: number): number =>
  Math.max(1, Math.floor(Math.min(perMinute / 10, Math.max(20, perMinute / 60))))

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
        const wanted = share(perMinute)
        const [row] = yield* repeatable(sql<{ readonly available: number }>`
          with filled as materialized (
            select least(${perMinute}::float8, tokens
              + greatest(0, extract(epoch from clock_timestamp() - updated_at)) * ${perMinute}::float8 / 60) as available
            from rate_limit where bucket = ${bucket} for update
          ), made as (
            insert into rate_limit (bucket, tokens, updated_at)
            select ${bucket}, ${perMinute}::float8 - ${wanted}::int, clock_timestamp()
            where not exists (select from filled)
            on conflict (bucket) do nothing returning ${perMinute}::float8 as available
          ), taken as (
            update rate_limit set updated_at = clock_timestamp(),
              tokens = f.available - least(floor(f.available), ${wanted}::int)
            from filled f where bucket = ${bucket}
          )
          select available from filled union all select available from made`)
        // No row: another process made the bucket at the same moment.
        if (row === undefined) return undefined
        const granted = Math.min(Math.floor(row.available), wanted)
        return { granted, left: row.available - granted }
      })

      const takeHeld = (own: Held): boolean => {
        if (own.tokens < 1) return false
        own.tokens -= 1
        return true
      }

      /** Draws until there is a token to take or none to draw; whoever waited for another's draw looks first. */
      const takeDrawn = Effect.fnUntraced(function* (
        own: Held,
        bucket: string,
        perMinute: number,
        now: number
      ) {
        while (!takeHeld(own)) {
          if (now < own.emptyUntil) return false
          const drawn = yield* draw(bucket, perMinute)
          if (drawn === undefined) continue
          own.tokens += drawn.granted
          own.shared = drawn.left
          if (drawn.granted === 0) own.emptyUntil = now + Math.ceil(((1 - drawn.left) * 60_000) / perMinute)
        }
        return true
      })

      return RateLimits.of({
        take: Effect.fnUntraced(function* (bucket, perMinute) {
          const now = yield* Clock.currentTimeMillis
          let own = held.get(bucket)
          if (own === undefined) {
            own = { tokens: 0, shared: 0, emptyUntil: 0, usedAt: now, drawing: Semaphore.makeUnsafe(1) }
            held.set(bucket, own)
            if (held.size > mostHeld) {
              const [oldest] = [...held].reduce((a, b) => (a[1].usedAt <= b[1].usedAt ? a : b))
              held.delete(oldest)
            }
          }
          own.usedAt = now
          const allowed =
            takeHeld(own) || (yield* own.drawing.withPermit(takeDrawn(own, bucket, perMinute, now)))
          return {
            allowed,
            limit: perMinute,
            remaining: Math.floor(own.tokens + own.shared),
            retryAfter: allowed ? 0 : Math.max(1, Math.ceil((own.emptyUntil - now) / 1000))
          }
        })
      })
    })
  )
}
