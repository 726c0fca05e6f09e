/** What the operations have in common: the connection they are about, and how objects are listed, read, made and changed. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { PaymentScope } from "#schemas/customer-payments.ts"
import { answer } from "#src/api/answer.ts"
import { Cursors } from "#src/api/cursor.ts"
import { defaultPageSize } from "#src/api/definition/fields.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { billedLate, billing } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, type Problem, problem } from "#src/api/problem.ts"
import { targetEnvironment } from "#src/api/target.ts"
import { type Connection, Connections, refusalText } from "./Connections.ts"
import { type Projected, Projections } from "./Projections.ts"
import { inWords, notConfigured, Requests } from "./Requests.ts"
import { redirectFault } from "./redirects.ts"
import { allows, areaOf, type ObjectType } from "./scopes.ts"

interface Page {
  readonly limit?: number
  readonly cursor?: string
}
type Headers = { readonly "idempotency-key"?: string }

const outside = (scope: PaymentScope): Problem =>
  problem(403, "scope_not_allowed", `The connection does not have the scope ${scope}; an owner can add it`)

const present = (params: Readonly<Record<string, unknown>>) =>
  Object.fromEntries(Object.entries(params).filter(([, value]) => value !== undefined && value !== null))

export const paymentOperations = Effect.gen(function* () {
  const connections = yield* Connections
  const cursors = yield* Cursors
  const projections = yield* Projections
  const requests = yield* Requests

  /** The connection, if it has the scope that the operation needs. Null: none is connected. */
  const connected = Effect.fnUntraced(function* (scope: PaymentScope | undefined) {
    const { orgId } = yield* RequestScope
    const { projectId, environment } = yield* targetEnvironment
    const found = yield* Effect.mapError(connections.find(orgId, projectId, environment), fromStore)
    if (Option.isNone(found)) return undefined
    const connection = found.value
    return scope !== undefined && !allows(connection.spec.credentialScopes, scope)
      ? yield* outside(scope)
      : connection
  })
  const configured = Effect.fnUntraced(function* (scope?: PaymentScope) {
    const connection = yield* connected(scope)
    yield* billing
    return connection ?? (yield* notConfigured)
  })
  /** Stripe is asked with its key. */
  const usable = (connection: Connection): Effect.Effect<Connection, Problem> =>
    connection.refusal === undefined
      ? Effect.succeed(connection)
      : Effect.fail(problem(409, "payments_disabled", refusalText[connection.refusal]))
  /** What the path names. */
  const located = Effect.fnUntraced(function* (type: ObjectType, id: string, scope: PaymentScope) {
    const connection = yield* connected(scope)
    if (connection === undefined) return yield* notFound(inWords[type])
    const found = yield* Effect.mapError(projections.find(connection, type, id), fromStore)
    if (Option.isNone(found)) return yield* notFound(inWords[type])
    yield* billing
    return { connection, object: found.value }
  })
  /** What a body names: Stripe's id of it. */
  const named = Effect.fnUntraced(function* (
    connection: Connection,
    type: ObjectType,
    id: string,
    pointer: string
  ) {
    const found = yield* Effect.mapError(projections.find(connection, type, id), fromStore)
    return Option.isSome(found)
      ? found.value.processorId
      : yield* invalid([{ pointer, message: `names no ${inWords[type]} of this environment` }])
  })
  const back = (connection: Connection, pointer: string, address: string | undefined) => {
    const fault =
      address === undefined ? undefined : redirectFault(connection.spec.allowedRedirectOrigins, address)
    return fault === undefined ? Effect.void : Effect.fail(invalid([{ pointer, message: fault }]))
  }

  const listOf = <View extends { readonly id: string }>(
    type: ObjectType,
    schema: {
      readonly Encoded: { readonly items: ReadonlyArray<View>; readonly nextCursor: string | null }
    },
    one: (object: Projected) => View
  ) =>
    billedLate(
      Effect.fnUntraced(function* ({ query: { limit = defaultPageSize, cursor } }: { readonly query: Page }) {
        const connection = yield* configured(`${areaOf[type]}:read`)
        const list = `payments ${connection.orgId} ${connection.uid} ${type}`
        const [ms, id] = (yield* cursors.decode(list, cursor)) ?? []
        const after =
          ms === undefined || id === undefined ? undefined : { createdAt: new Date(Number(ms)), id }
        const found = yield* Effect.mapError(projections.list(connection, type, limit + 1, after), fromStore)
        const { items, nextCursor } = cursors.page(list, found, limit, (last) => [
          String(last.createdAt.getTime()),
          last.id
        ])

        return answer(schema, { items: items.map(one), nextCursor })
      })
    )

  /** `describe` says what Stripe is asked for, or what of the body is at fault. */
  const create = <Payload, View>(
    type: ObjectType,
    one: (object: Projected) => View,
    describe: (
      connection: Connection,
      payload: Payload
    ) => Effect.Effect<
      {
        readonly params: Readonly<Record<string, unknown>>
        readonly metadata?: Readonly<Record<string, string>> | undefined
      },
      Problem
    >
  ) =>
    billedLate(
      Effect.fnUntraced(function* ({
        payload,
        headers
      }: {
        readonly payload: Payload
        readonly headers: Headers
      }) {
        const { caller, operation, reservation } = yield* RequestScope
        const connection = yield* usable(yield* configured(`${areaOf[type]}:write`))
        const { params, metadata = {} } = yield* describe(connection, payload)
        const made = yield* requests.create(
          connection,
          {
            type,
            operation: operation.id,
            callerKey: headers["idempotency-key"],
            id: reservation.uid,
            body: payload,
            params: present(params),
            metadata
          },
          { ...caller.actor, outcome: 201 }
        )
        return one(made)
      })
    )

  const change = <View>(
    type: ObjectType,
    id: string,
    one: (object: Projected) => View,
    describe: (before: Projected) => Readonly<Record<string, unknown>> | undefined
  ) =>
    Effect.gen(function* () {
      const { connection, object } = yield* located(type, id, `${areaOf[type]}:write`)
      const { caller } = yield* RequestScope
      const now = yield* usable(connection)
      return one(yield* requests.change(now, type, object, describe(object), caller.actor))
    })
  const get = <View>(type: ObjectType, id: string, one: (object: Projected) => View) =>
    Effect.map(located(type, id, `${areaOf[type]}:read`), ({ object }) => one(object))

  return { connected, configured, usable, located, named, back, listOf, create, change, get }
})
