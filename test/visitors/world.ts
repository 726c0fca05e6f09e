/** The services of visitors over a database, with an environment that has a host, and people who are signed in. */
import { randomUUIDv7 } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type { AccessMode } from "#schemas/access-policy.ts"
import { digestOf } from "#src/access/Access.ts"
import { newSessionToken } from "#src/access/bootstrap.ts"
import { AppConfig } from "#src/config.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { SiteModes } from "#src/visitors/SiteModes.ts"
import { challengeOf, Visits } from "#src/visitors/Visits.ts"
import { testDb } from "#test/setup/database.ts"
import { makeOrganization, makeProject, uuid } from "#test/setup/fixtures.ts"

export const world = Layer.mergeAll(Visits.layer, SiteModes.layer, EdgeSites.layer).pipe(
  Layer.provideMerge(Resources.layer),
  Layer.provideMerge(Layer.mergeAll(KeyRing.layerEphemeral, testDb())),
  Layer.provideMerge(AppConfig.layerWith({}, {}))
)

/** Somebody with an account, signed in; a member where an organization is given. */
export const makePerson = Effect.fn(function* (orgId?: string, email = `${randomUUIDv7()}@example.test`) {
  const { engine: sql } = yield* Db
  const [userId, id, token] = [uuid(), uuid(), newSessionToken()]
  yield* Effect.orDie(
    Effect.all([
      sql`insert into account (id, email, name) values (${userId}, ${email}, 'Somebody')`,
      ...(orgId === undefined
        ? []
        : [
            sql`insert into member (org_id, id, user_id, role) values (${orgId}, ${uuid()}, ${userId}, 'member')`
          ]),
      sql`insert into session (id, digest, user_id, expires_at)
        values (${id}, ${digestOf(token)}, ${userId}, now() + interval '1 day')`
    ])
  )
  return { id, userId, email, token }
})

/** An environment with this mode at the edge, which is reached under `host`. */
export const makeSite = Effect.fn(function* (access: AccessMode, org?: { readonly id: string }) {
  const { engine: sql } = yield* Db
  const { id: orgId } = org ?? (yield* makeOrganization())
  const { projectId, production } = yield* makeProject(orgId, `p-${uuid().slice(-12)}`)
  const sites = yield* EdgeSites
  const key = { orgId, environmentUid: production }
  const label = yield* sites.ensure(key, { target: undefined })
  yield* sites.setAccess(key, access)
  const invite = (email: string) =>
    Effect.orDie(sql`insert into access_invitation (org_id, id, project_id, email)
      values (${orgId}, ${uuid()}, ${projectId}, ${email})`)
  return { orgId, projectId, environmentUid: production, host: sites.hostnameOf(label ?? ""), invite }
})

/** What the browser keeps that set out for the host. */
export const state = "5".repeat(64)
export const challenge = challengeOf(Redacted.make(state))
