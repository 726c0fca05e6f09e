/** Handlers of `access.*`. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { AccessPolicy, AccessPolicySpec, accessModeOf, accessPolicyName } from "#schemas/access-policy.ts"
import { looksLikeUid, sharedPreview } from "#schemas/names.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, notFound, problem } from "#src/api/problem.ts"
import { projectSingleton } from "#src/api/project-singleton.ts"
import { targetProject } from "#src/api/target.ts"
import { serviceStatus } from "#src/api/views.ts"
import { remove } from "#src/api/writing.ts"
import { normalizeEmail } from "#src/organizations/Invitations.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { type AccessInvitation, AccessInvitations, mostInvitations } from "./AccessInvitations.ts"
import { AccessInvitationList, AccessPolicyView } from "./api.ts"

const complete = Schema.decodeUnknownEffect(AccessPolicySpec)

const policyView = (
  spec: AccessPolicySpec,
  record: ResourceRecord | undefined,
  environments: ReadonlyArray<ResourceRecord>
) => ({
  ...spec,
  effective: Object.fromEntries(
    environments.map(({ name, parentUid, projectId }) => {
      const isPreview = name === sharedPreview || parentUid !== projectId
      return [name, accessModeOf(record === undefined ? undefined : spec, name, isPreview)]
    })
  ),
  status: record === undefined ? null : statusOf(record),
  managedBy: record?.managedBy ?? null
})

/** A mode that was said last is in force once it was acted on: whoever made a project private relies on it. */
const statusOf = (record: ResourceRecord) => {
  const status = serviceStatus(record)
  const isOfBefore = record.observedGeneration !== record.generation
  return status === "ready" && isOfBefore ? "provisioning" : status
}

const invitationView = ({ createdAt, ...invitation }: AccessInvitation) => ({
  ...invitation,
  createdAt: createdAt.toISOString()
})

const tooMany = problem(
  409,
  "too_many_invitations",
  `A project has at most ${mostInvitations} invited addresses; take some back, or let the whole organization in`
)

export const layer = HttpApiBuilder.group(
  Api,
  "access",
  Effect.fnUntraced(function* (handlers) {
    const resources = yield* Resources
    const invitations = yield* AccessInvitations

    const { current, set } = yield* projectSingleton(AccessPolicy, accessPolicyName)

    const shown = Effect.gen(function* () {
      const { orgId } = yield* RequestScope
      const { projectId } = yield* targetProject
      const list = Effect.mapError(resources.listKind(orgId, "Environment", projectId), fromStore)
      const [record, environments] = yield* Effect.all([current, list], { concurrency: 2 })
      const spec = yield* Effect.orDie(complete(record?.spec ?? {}))
      const living = environments.filter(({ deletionRequestedAt }) => deletionRequestedAt === null)
      const view = policyView(spec, record, living)
      return answer(AccessPolicyView, view, record)
    })

    return handlers.handleAll(
      handlersOf(Api.groups.access)({
        get: () => shown,
        set: Effect.fnUntraced(function* ({ payload }) {
          yield* set(yield* Effect.orDie(complete(payload)))
          return yield* shown
        }),
        delete: Effect.fnUntraced(function* () {
          const record = yield* current
          if (record === undefined) return yield* notFound("access policy in this project")
          return yield* remove(record)
        }),
        listInvitations: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const { projectId } = yield* targetProject
          const found = yield* Effect.mapError(invitations.list(orgId, projectId), fromStore)
          return answer(AccessInvitationList, found.map(invitationView))
        }),
        invite: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const { projectId } = yield* targetProject
          const invited = { id: reservation.uid, email: normalizeEmail(payload.email) }
          const actor = { ...caller.actor, outcome: 201 }
          const found = yield* Effect.mapError(invitations.add(orgId, projectId, invited, actor), fromStore)
          return Option.isSome(found) ? invitationView(found.value) : yield* tooMany
        }),
        revokeInvitation: Effect.fnUntraced(function* ({ params: { invitationId } }) {
          const { orgId, caller } = yield* RequestScope
          const { projectId } = yield* targetProject
          if (!looksLikeUid(invitationId)) return yield* notFound("invitation of this project")
          const removed = yield* Effect.mapError(
            invitations.remove(orgId, projectId, invitationId, caller.actor),
            fromStore
          )
          return removed ? { ok: true as const } : yield* notFound("invitation of this project")
        })
      })
    )
  })
)
