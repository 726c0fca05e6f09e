/** Handlers of `orgs.*` that are about organizations themselves. */
import * as Effect from "effect/Effect"
import * as HttpApiBuilder from "effect/http-api/HttpApiBuilder"
import * as Option from "effect/Option"
import { answer } from "#src/api/answer.ts"
import { Api } from "#src/api/definition/api.ts"
import { RequestScope } from "#src/api/definition/scope.ts"
import { handlersOf } from "#src/api/handler.ts"
import { fromStore, problem, slugTaken } from "#src/api/problem.ts"
import { mismatch, precondition } from "#src/api/writing.ts"
import { AppConfig } from "#src/config.ts"
import { OrganizationList, OrganizationView } from "../api/orgs.ts"
import { type Organization, Organizations } from "../Organizations.ts"
import { noOrganization, notAllowed, theUser } from "./people.ts"

const view = (organization: Organization) => ({
  id: organization.id,
  name: organization.name,
  slug: organization.slug,
  isPersonal: organization.isPersonal,
  billingStatus: organization.billingStatus,
  createdAt: organization.createdAt.toISOString()
})

/** One person's organizations: without a bound, somebody could take every slug. */
const mostOrganizations = 100
const tooManyOrganizations = problem(
  409,
  "too_many_organizations",
  `You belong to ${mostOrganizations} organizations already; leave or delete one first`
)

const personal = problem(
  422,
  "personal_organization",
  "This is a personal organization: it stays as long as its account does"
)

export const layer = HttpApiBuilder.group(
  Api,
  "orgs",
  Effect.fnUntraced(function* (handlers) {
    const organizations = yield* Organizations
    const { billing } = yield* AppConfig

    const theOrganization = Effect.gen(function* () {
      const { orgId } = yield* RequestScope
      const found = yield* Effect.mapError(organizations.get(orgId), fromStore)
      return Option.isSome(found) ? found.value : yield* noOrganization
    })

    return handlers.handleAll(
      handlersOf(Api.groups.orgs)({
        list: Effect.fnUntraced(function* () {
          const found = yield* Effect.mapError(organizations.ofUser(yield* theUser), fromStore)
          return answer(OrganizationList, found.map(view))
        }),
        create: Effect.fnUntraced(function* ({ payload }) {
          const { caller, reservation } = yield* RequestScope
          const userId = yield* theUser
          const present = yield* Effect.mapError(organizations.ofUser(userId), fromStore)
          const before = present.find(({ id }) => id === reservation.uid)
          if (before !== undefined) return view(before)
          if (present.length >= mostOrganizations) return yield* tooManyOrganizations
          const billingStatus = billing === "required" ? "unpaid" : "active"
          const made = { id: reservation.uid, ...payload, billingStatus } as const
          const actor = { ...caller.actor, outcome: 201 }
          return view(
            yield* organizations
              .create(made, userId, actor)
              .pipe(Effect.mapError(fromStore), Effect.mapError(slugTaken(payload.slug)))
          )
        }),
        get: Effect.fnUntraced(function* () {
          const organization = yield* theOrganization
          return answer(OrganizationView, view(organization), organization)
        }),
        update: Effect.fnUntraced(function* ({ payload }) {
          const { orgId, caller } = yield* RequestScope
          const expected = yield* precondition(yield* theOrganization)
          const updated = yield* organizations
            .update(orgId, { ...payload, ...expected }, caller.actor)
            .pipe(Effect.mapError(fromStore), Effect.mapError(slugTaken(payload.slug ?? "")))
          if (Option.isNone(updated)) {
            yield* theOrganization
            return yield* mismatch
          }
          return answer(OrganizationView, view(updated.value), updated.value)
        }),
        delete: Effect.fnUntraced(function* () {
          const { orgId, caller } = yield* RequestScope
          const organization = yield* theOrganization
          const expected = yield* precondition(organization)
          const by = { userId: yield* theUser, ...expected }
          const done = yield* Effect.mapError(organizations.remove(orgId, by, caller.actor), fromStore)
          switch (done._tag) {
            case "Deleted":
              return { ok: true as const }
            case "Missing":
              return yield* noOrganization
            case "Personal":
              return yield* personal
            case "NotOwner":
              return yield* notAllowed
            case "Changed":
              return yield* mismatch
            case "Protected":
              return yield* problem(
                409,
                "protected",
                `${done.resource} is protected against deletion; remove the protection first`
              )
          }
        })
      })
    )
  })
)
