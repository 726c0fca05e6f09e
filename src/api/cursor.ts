/** Opaque positions in lists: authenticated, so that nobody can forge one, and bound to the list they came from. */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { invalid, type Problem } from "./problem.ts"

export class Cursors extends Context.Service<
  Cursors,
  {
    readonly encode: (list: string, position: ReadonlyArray<string>) => string
    readonly decode: (
      list: string,
      cursor: string | undefined
    ) => Effect.Effect<ReadonlyArray<string> | undefined, Problem>
    /** Of `limit` + 1 that were asked for: those that are shown, and the cursor behind the last one if there are more. */
    readonly page: <A>(
      list: string,
      found: ReadonlyArray<A>,
      limit: number,
      positionOf: (last: A) => ReadonlyArray<string>
    ) => { readonly items: ReadonlyArray<A>; readonly nextCursor: string | null }
  }
>()("svc/api/Cursors") {
  static readonly layer = Layer.effect(
    Cursors,
    Effect.gen(function* () {
      const platform = yield* PlatformSecrets
      const key = yield* platform.ensure(
        "cursor-key",
        Effect.sync(() => Redacted.make(randomBytes(32).toString("base64")))
      )
      const sign = (list: string, text: string) =>
        createHmac("sha256", Redacted.value(key))
          .update(JSON.stringify([list, text]))
          .digest()
          .subarray(0, 16)
      const encode = (list: string, position: ReadonlyArray<string>) => {
        const text = position.join(" ")
        return Buffer.concat([sign(list, text), Buffer.from(text)]).toString("base64url")
      }
      return Cursors.of({
        encode,
        page: (list, found, limit, positionOf) => {
          const items = found.slice(0, limit)
          const last = items.at(-1)
          return {
            items,
            nextCursor: found.length > limit && last !== undefined ? encode(list, positionOf(last)) : null
          }
        },
        decode: (list, cursor) => {
          if (cursor === undefined) return Effect.succeed(undefined)
          const bytes = Buffer.from(cursor, "base64url")
          const text = bytes.subarray(16).toString("utf8")
          return bytes.length > 16 && timingSafeEqual(bytes.subarray(0, 16), sign(list, text))
            ? Effect.succeed(text.split(" "))
            : Effect.fail(
                invalid([
                  {
                    pointer: "/query/cursor",
                    message: "is not a cursor that this list gave out; start without one"
                  }
                ])
              )
        }
      })
    })
  )
}
