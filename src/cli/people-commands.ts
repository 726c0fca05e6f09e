/** `svc orgs`, `svc members`, `svc invitations`: organizations and who belongs to them. They take a session. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Role } from "../api/definition/members.ts"
import { Client, call } from "./client.ts"
import { renameOrganization } from "./credentials.ts"
import { exitCodes, failure } from "./failure.ts"
import { asJson, confirmName, connection, online, yes } from "./flags.ts"
import { json, out, say, table } from "./output.ts"

const orgsLs = Command.make("ls", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner } = yield* Client
      const found = yield* call(asOwner.orgs.list())
      if (flags.json) return yield* json(found)
      yield* out(
        table(
          ["ORGANIZATION", "BILLING", "NAME"],
          found.map(({ slug, billingStatus, isPersonal, name }) => [
            slug,
            billingStatus,
            isPersonal ? `${name} (personal)` : name
          ])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List the organizations that you belong to"))

const orgsCreate = Command.make(
  "create",
  {
    ...connection,
    slug: Argument.String("slug").pipe(Argument.withDescription("2 to 39 lowercase letters, digits, dashes")),
    name: Flag.String("name").pipe(Flag.withDescription("Name (else the slug)"), Flag.optional),
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner } = yield* Client
        const payload = { slug: flags.slug, name: Option.getOrElse(flags.name, () => flags.slug) }
        const made = yield* call(asOwner.orgs.create({ payload, headers: {} }))
        yield* flags.json
          ? json(made)
          : say(`"${made.slug}" made; it is yours. Commands reach it with --org ${made.slug}`)
      })
    )
).pipe(Command.withDescription("Create an organization that you own"))

const orgsUpdate = Command.make(
  "update",
  {
    ...connection,
    name: Flag.String("name").pipe(Flag.withDescription("New name"), Flag.optional),
    slug: Flag.String("slug").pipe(
      Flag.withDescription("New slug; manifests and paths that name the old one must follow"),
      Flag.optional
    ),
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner, login, org } = yield* Client
        const payload = {
          ...(Option.isSome(flags.name) ? { name: flags.name.value } : {}),
          ...(Option.isSome(flags.slug) ? { slug: flags.slug.value } : {})
        }
        if (Object.keys(payload).length === 0)
          return yield* failure("Nothing to change: give --name or --slug", exitCodes.usage)
        const { body } = yield* call(asOwner.orgs.update({ params: { orgId: org }, payload, headers: {} }))
        if (body.slug !== org) yield* renameOrganization(login.apiUrl, org, body.slug)
        yield* flags.json ? json(body) : say(`It is "${body.name}" with the slug "${body.slug}" now`)
      })
    )
).pipe(Command.withDescription("Change the name or the slug of the organization"))

const orgsDelete = Command.make("delete", { ...connection, yes }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner, org } = yield* Client
      const params = { orgId: org }
      const { body } = yield* call(asOwner.orgs.get({ params }))
      yield* confirmName(
        `This deletes the organization "${body.slug}" and everything in it, databases included.`,
        body.slug,
        flags.yes
      )
      yield* call(asOwner.orgs.delete({ params, headers: {} }))
      yield* say(`"${body.slug}" is gone; what it had is being removed`)
    })
  )
).pipe(Command.withDescription("Delete the organization and everything in it"))

export const orgs = Command.make("orgs").pipe(
  Command.withDescription("Organizations"),
  Command.withSubcommands([orgsLs, orgsCreate, orgsUpdate, orgsDelete])
)

const who = Argument.String("member").pipe(Argument.withDescription("E-mail address or id"))
const findMember = Effect.fnUntraced(function* (named: string) {
  const { asOwner, org } = yield* Client
  const members = yield* call(asOwner.members.list({ params: { orgId: org } }))
  const found = members.find(({ id, email }) => id === named || email === named.toLowerCase())
  return found ?? (yield* failure(`"${org}" has no member "${named}"`, exitCodes.notFound))
})

const membersLs = Command.make("ls", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner, org } = yield* Client
      const members = yield* call(asOwner.members.list({ params: { orgId: org } }))
      if (flags.json) return yield* json(members)
      yield* out(
        table(
          ["E-MAIL", "ROLE", "NAME", "SINCE"],
          members.map(({ email, role, name, createdAt }) => [email, role, name, createdAt.slice(0, 10)])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List members"))

const membersRole = Command.make(
  "set-role",
  { ...connection, member: who, role: Argument.Literals("role", Role.literals), json: asJson },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner, org } = yield* Client
        const { id } = yield* findMember(flags.member)
        const params = { orgId: org, memberId: id }
        const changed = yield* call(asOwner.members.update({ params, payload: { role: flags.role } }))
        yield* flags.json ? json(changed) : say(`${changed.email} is ${changed.role} now`)
      })
    )
).pipe(Command.withDescription("Change the role of a member"))

const membersRm = Command.make("rm", { ...connection, member: who, yes }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asOwner, org } = yield* Client
      const { id, email } = yield* findMember(flags.member)
      yield* confirmName(
        `This takes ${email} out of "${org}"; the API keys that ${email} made stop working.`,
        email,
        flags.yes
      )
      yield* call(asOwner.members.remove({ params: { orgId: org, memberId: id } }))
      yield* say(`${email} is no member of "${org}" any more`)
    })
  )
).pipe(Command.withAlias("remove"), Command.withDescription("Remove a member"))

export const members = Command.make("members").pipe(
  Command.withDescription("Who belongs to the organization"),
  Command.withSubcommands([membersLs, membersRole, membersRm])
)

const pending = Effect.gen(function* () {
  const { asOwner, org } = yield* Client
  return yield* call(asOwner.invitations.list({ params: { orgId: org } }))
})

const invitationsLs = Command.make("ls", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const found = yield* pending
      if (flags.json) return yield* json(found)
      if (found.length === 0) return yield* say("Nobody is invited just now")
      yield* out(
        table(
          ["E-MAIL", "ROLE", "EXPIRES"],
          found.map(({ email, role, expiresAt }) => [email, role, expiresAt])
        )
      )
    })
  )
).pipe(Command.withAlias("list"), Command.withDescription("List invitations that nobody has accepted yet"))

const invitationsCreate = Command.make(
  "create",
  {
    ...connection,
    email: Argument.String("email"),
    role: Flag.Literals("role", ["member", "admin"]).pipe(Flag.withDefault("member")),
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner, org } = yield* Client
        const payload = { email: flags.email, role: flags.role }
        const made = yield* call(asOwner.invitations.create({ params: { orgId: org }, payload, headers: {} }))
        yield* flags.json
          ? json(made)
          : say(`${made.email} gets a mail with a link, good until ${made.expiresAt.slice(0, 10)}`)
      })
    )
).pipe(Command.withDescription("Invite somebody by e-mail"))

const invitationsRevoke = Command.make(
  "revoke",
  {
    ...connection,
    invitation: Argument.String("invitation").pipe(Argument.withDescription("E-mail address or id")),
    yes
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asOwner, org } = yield* Client
        const named = flags.invitation
        const found = (yield* pending).find(({ id, email }) => id === named || email === named.toLowerCase())
        if (found === undefined)
          return yield* failure(`There is no open invitation for "${named}"`, exitCodes.notFound)
        yield* confirmName(`The link that ${found.email} has works no more.`, found.email, flags.yes)
        yield* call(asOwner.invitations.revoke({ params: { orgId: org, invitationId: found.id } }))
        yield* say(`The invitation for ${found.email} is taken back`)
      })
    )
).pipe(Command.withDescription("Take an invitation back"))

export const invitations = Command.make("invitations").pipe(
  Command.withDescription("Inviting people"),
  Command.withSubcommands([invitationsLs, invitationsCreate, invitationsRevoke])
)
