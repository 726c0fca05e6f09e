/** Handlers of `apikeys.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound } from "#src/api/problem.ts"
import { ApiKeys } from "../ApiKeys.ts"
import { ApiKeyList } from "../api/api-keys.ts"
import { notAllowed, theUser } from "./people.ts"

export const layer = HttpApiBuilder.group(
  Api,
  "apikeys",
  Effect.fnUntraced(function* (handlers) {
    const keys = yield* ApiKeys
    return handlers.handleAll(
      handlersOf(Api.groups.apikeys)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const found = yield* Effect.mapError(keys.list(orgId), fromStore)
          return answer(
            ApiKeyList,
            found.map((key) => ({
              ...key,
              lastUsedAt: key.lastUsedAt?.toISOString() ?? null,
              revokedAt: key.revokedAt?.toISOString() ?? null,
              createdAt: key.createdAt.toISOString()
            }))
          )
        }),
        create: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const { name, role = "admin" } = payload
          const actor = { ...caller.actor, outcome: 201 }
          const made = yield* Effect.mapError(
            keys.create(orgId, { name, role }, yield* theUser, actor, reservation),
            fromStore
          )
          if (Option.isNone(made)) return yield* notAllowed
          const { id, keyPrefix, key } = made.value
          return { id, name, keyPrefix, role, key: Redacted.value(key) }
        }),
        revoke: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller } = yield* RequestScope
          const at = yield* Effect.mapError(keys.revoke(orgId, params.keyId, caller.actor), fromStore)
          return Option.isSome(at) ? { revokedAt: at.value.toISOString() } : yield* notFound("API key")
        })
      })
    )
  })
)
