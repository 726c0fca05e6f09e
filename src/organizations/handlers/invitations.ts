/** Handlers of `orgs.*` about invitations, and of their acceptance. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { RateLimits } from "#src/access/RateLimits.ts"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { tooMany } from "#src/api/limits.ts"
import { fromStore, notFound, type Problem, problem } from "#src/api/problem.ts"
import { AppConfig } from "#src/config.ts"
import * as messages from "#src/mail/messages.ts"
import { InvitationList } from "../api/invitations.ts"
import { type Declined, type Invitation, Invitations, normalizeEmail } from "../Invitations.ts"
import { theUser } from "./people.ts"

/** Mails that an organization may have sent to strangers in a minute. */
const invitationsPerMinute = 30

const view = (invitation: Invitation) => ({
  id: invitation.id,
  email: invitation.email,
  role: invitation.role,
  status: invitation.status,
  expiresAt: invitation.expiresAt.toISOString()
})

const alreadyMember = problem(409, "already_member", "That address belongs to a member of the organization")

export const declined: Readonly<Record<Declined, Problem>> = {
  unknown: notFound("invitation"),
  not_meant: problem(
    403,
    "other_address",
    "This invitation is for another e-mail address; sign in with the account that has it"
  ),
  accepted: problem(409, "invitation_used", "This invitation was accepted already"),
  revoked: problem(409, "invitation_revoked", "This invitation was taken back; ask for another"),
  expired: problem(409, "invitation_expired", "This invitation has expired; ask for another"),
  member: problem(409, "already_member", "You are a member of this organization already")
}

export const layer = HttpApiBuilder.group(
  Api,
  "invitations",
  Effect.fnUntraced(function* (handlers) {
    const invitations = yield* Invitations
    const limits = yield* RateLimits
    const { publicUrl } = yield* AppConfig
    return handlers.handleAll(
      handlersOf(Api.groups.invitations)({
        list: Effect.fnUntraced(function* () {
          const { orgId } = yield* RequestScope
          const found = yield* Effect.mapError(invitations.list(orgId), fromStore)
          return answer(InvitationList, found.map(view))
        }),
        create: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller, reservation } = yield* RequestScope
          const taken = yield* Effect.mapError(
            limits.take(`invitations:${orgId}`, invitationsPerMinute),
            fromStore
          )
          if (!taken.allowed) return yield* tooMany("invitations", taken)
          const email = normalizeEmail(payload.email)
          const invitation = yield* Effect.mapError(
            invitations.create(
              orgId,
              { email, role: payload.role },
              yield* theUser,
              { ...caller.actor, outcome: 201 },
              reservation,
              ({ organization, inviter, token, days }) =>
                messages.invitation(
                  organization,
                  inviter,
                  payload.role,
                  messages.invitationLink(publicUrl, Redacted.value(token)),
                  days
                )
            ),
            fromStore
          )
          return Option.isSome(invitation) ? view(invitation.value) : yield* alreadyMember
        }),
        revoke: Effect.fnUntraced(function* ({ params }) {
          const { orgId, caller } = yield* RequestScope
          const done = yield* Effect.mapError(
            invitations.revoke(orgId, params.invitationId, caller.actor),
            fromStore
          )
          return done ? { ok: true as const } : yield* declined.accepted
        }),
        accept: Effect.fnUntraced(function* ({ params }) {
          const { caller, reservation } = yield* RequestScope
          const joined = yield* Effect.mapError(
            invitations.accept(params.token, yield* theUser, caller.actor, reservation.again),
            fromStore
          )
          if (typeof joined === "string") return yield* declined[joined]
          const { role, ...organization } = joined
          return { organization, role }
        })
      })
    )
  })
)
