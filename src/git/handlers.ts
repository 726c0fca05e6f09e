/** Handlers of `gitConnections.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import type { Fault } from "#src/api/definition/problem.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, invalid, notFound, type Problem, problem } from "#src/api/problem.ts"
import { AppConfig } from "#src/config.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { GitConnectionList, type GitConnectionRequest } from "./api.ts"
import { type ConnectionKind, defaultUrl } from "./connection-kinds.ts"
import { Forge } from "./Forge.ts"
import { type GitConnection, GitConnections } from "./GitConnections.ts"

const noConnection = notFound("connection")
const sealed = (value: string | undefined) => (value === undefined ? undefined : Redacted.make(value))

export const layer = HttpApiBuilder.group(
  Api,
  "gitConnections",
  Effect.fnUntraced(function* (handlers) {
    const connections = yield* GitConnections
    const forge = yield* Forge
    const outbound = yield* Outbound
    const { publicUrl } = yield* AppConfig

    const view = ({ checkedAt, createdAt, ...rest }: GitConnection) => ({
      id: rest.id,
      name: rest.name,
      kind: rest.kind,
      url: rest.url,
      owner: rest.owner,
      appId: rest.appId,
      installationId: rest.installationId,
      webhookUrl: `${publicUrl}/v1/git/webhooks/${rest.id}`,
      account: rest.account,
      checkedAt: checkedAt?.toISOString() ?? null,
      checkError: rest.checkError,
      createdAt: createdAt.toISOString()
    })

    /** In the one spelling that it is kept in. */
    const forgeUrl = Effect.fnUntraced(function* ({ kind, url = defaultUrl(kind) }: GitConnectionRequest) {
      const fault = (message: string) => invalid([{ pointer: "/url", message }])
      if (url === undefined) return yield* fault(`must be said for ${kind}: everybody has their own`)
      const { href } = yield* Effect.mapError(outbound.checkAddress(url), ({ message }) => fault(message))
      return href.replace(/\/+$/, "")
    })

    return handlers.handleAll(
      handlersOf(Api.groups.gitConnections)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const found = yield* Effect.mapError(connections.list(orgId), fromStore)
          return answer(GitConnectionList, found.map(view))
        }),
        create: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const faults = faultsOf(payload)
          if (faults.length > 0) return yield* invalid(faults)
          const { connection, webhookSecret } = yield* Effect.mapError(
            connections.create(
              orgId,
              {
                name: payload.name,
                kind: payload.kind,
                url: yield* forgeUrl(payload),
                owner: payload.owner.toLowerCase(),
                appId: payload.appId ?? null,
                installationId: payload.installationId ?? null,
                token: sealed(payload.token),
                privateKey: sealed(payload.privateKey),
                webhookSecret: sealed(payload.webhookSecret)
              },
              { ...caller.actor, outcome: 201 },
              reservation
            ),
            conflict
          )
          return { ...view(connection), webhookSecret: Redacted.value(webhookSecret) }
        }),
        get: Effect.fnUntraced(function* ({ params }) {
          const { orgId } = yield* RequestScope
          const found = yield* Effect.mapError(connections.get(orgId, params.connectionId), fromStore)
          return Option.isSome(found) ? view(found.value) : yield* noConnection
        }),
        update: Effect.fnUntraced(function* ({ params, payload }) {
          const { orgId, caller } = yield* RequestScope
          const known = yield* Effect.mapError(connections.get(orgId, params.connectionId), fromStore)
          if (Option.isNone(known)) return yield* noConnection
          const { kind } = known.value
          const faults = isApp(kind)
            ? misplaced(payload, ["token"], kind)
            : misplaced(payload, ["privateKey", "installationId"], kind)
          if (faults.length > 0) return yield* invalid(faults)
          const changed = yield* Effect.mapError(
            connections.update(
              orgId,
              params.connectionId,
              {
                name: payload.name,
                owner: payload.owner?.toLowerCase(),
                installationId: payload.installationId,
                token: sealed(payload.token),
                privateKey: sealed(payload.privateKey),
                webhookSecret: sealed(payload.webhookSecret)
              },
              caller.actor
            ),
            conflict
          )
          return Option.isSome(changed) ? view(changed.value) : yield* noConnection
        }),
        delete: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller } = yield* RequestScope
          const gone = yield* Effect.mapError(
            connections.remove(orgId, params.connectionId, caller.actor),
            fromStore
          )
          return gone ? { ok: true as const } : yield* noConnection
        }),
        check: Effect.fnUntraced(function* ({ params }) {
          const { orgId } = yield* RequestScope
          const id = params.connectionId
          const opened = yield* Effect.mapError(connections.open(orgId, { id }), fromStore)
          if (Option.isNone(opened)) return yield* noConnection
          const client = forge.client(opened.value)
          const asked = yield* Effect.result(
            // An app may be known and not installed where the connection says.
            Effect.andThen(client.credential, client.account)
          )
          const said =
            asked._tag === "Success"
              ? { account: asked.success, error: null }
              : { account: null, error: asked.failure.message }
          const noted = yield* Effect.mapError(connections.checked(orgId, id, said), fromStore)
          return Option.isSome(noted) ? view(noted.value) : yield* noConnection
        })
      })
    )
  })
)

const isApp = (kind: ConnectionKind) => kind === "github_app"

type Credentials = Pick<GitConnectionRequest, "token" | "privateKey" | "appId" | "installationId">

const misplaced = (
  given: Partial<Credentials>,
  fields: ReadonlyArray<keyof Credentials>,
  kind: ConnectionKind
): ReadonlyArray<Fault> =>
  fields.flatMap((field) =>
    given[field] === undefined ? [] : [{ pointer: `/${field}`, message: `is not for ${kind}` }]
  )

const faultsOf = (request: GitConnectionRequest): ReadonlyArray<Fault> => {
  const { kind } = request
  const app = ["appId", "installationId", "privateKey"] as const
  const needed: ReadonlyArray<keyof Credentials> = isApp(kind) ? app : ["token"]
  return [
    ...needed.flatMap((field) =>
      request[field] === undefined ? [{ pointer: `/${field}`, message: `is needed for ${kind}` }] : []
    ),
    ...misplaced(request, isApp(kind) ? ["token"] : app, kind)
  ]
}

const conflict = (error: Parameters<typeof fromStore>[0]): Problem =>
  error._tag === "NameTaken" ? problem(409, "connection_exists", error.message) : fromStore(error)
