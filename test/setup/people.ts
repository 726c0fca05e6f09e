/** People for tests: accounts with a session, members, and the mails that were promised to them. */
import { randomUUIDv7 } from "node:crypto"
import * as Effect from "effect/Effect"
import { digestOf } from "#src/access/Access.ts"
import { newSessionToken } from "#src/access/bootstrap.ts"
import { Plane } from "./control-plane.ts"

export interface Person {
  readonly userId: string
  readonly email: string
  readonly token: string
}

/** Somebody with an account and a session, in no organization. */
export const person = Effect.fn(function* (email?: string) {
  const { sql } = yield* Plane
  const userId = randomUUIDv7()
  const [address, token] = [email ?? `p-${userId.slice(-12)}@example.test`, newSessionToken()]
  yield* sql(`insert into account (id, email, name) values ('${userId}', '${address}', 'Person')`)
  yield* sql(`insert into session (id, digest, user_id, expires_at)
    values ('${randomUUIDv7()}', '\\x${digestOf(token).toString("hex")}', '${userId}', now() + interval '1 day')`)
  const made: Person = { userId, email: address, token }
  return made
})

/** Makes somebody a member without an invitation; answers the member's id. */
export const enrol = Effect.fn(function* (orgId: string, userId: string, role: string) {
  const { sql } = yield* Plane
  const id = randomUUIDv7()
  yield* sql(
    `insert into member (org_id, id, user_id, role) values ('${orgId}', '${id}', '${userId}', '${role}')`
  )
  return id
})

/** Gives an invitation a token that the test knows: the real one is in a sealed mail only. */
export const knownToken = Effect.fn(function* (invitationId: string) {
  const { sql } = yield* Plane
  const token = `svci_${randomUUIDv7().replaceAll("-", "").repeat(2)}`
  yield* sql(
    `update invitation set digest = '\\x${digestOf(token).toString("hex")}' where id = '${invitationId}'`
  )
  return token
})
