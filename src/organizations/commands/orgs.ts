/** `svc orgs`, `svc members`, `svc invitations`: organizations and who belongs to them. They take a session. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { call } from "#src/cli/client.ts"
import { renameOrganization } from "#src/cli/credentials.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, yes } from "#src/cli/flags.ts"
import { json, say } from "#src/cli/output.ts"
import { inOrganization, resourceCommands } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { Role } from "../api/members.ts"

const ofOrganizations = resourceCommands({
  scope: inOrganization,
  noun: "organization",
  plural: "organizations",
  argument: Argument.String("organization"),
  list: ({ asOwner }) => asOwner.orgs.list(),
  nameOf: ({ slug }) => slug,
  one: (_, { id }) => ({ params: { orgId: id } })
})

const orgsLs = ofOrganizations
  .ls({
    columns: {
      ORGANIZATION: ({ slug }) => slug,
      BILLING: ({ billingStatus }) => billingStatus,
      NAME: ({ isPersonal, name }) => (isPersonal ? `${name} (personal)` : name)
    },
    empty: () => "You belong to no organization"
  })
  .pipe(Command.withDescription("List the organizations that you belong to"))

const orgsCreate = ofOrganizations
  .command(
    "create",
    {
      slug: Argument.String("slug").pipe(
        Argument.withDescription("2 to 39 lowercase letters, digits, dashes")
      ),
      name: Flag.String("name").pipe(Flag.withDescription("Name (else the slug)"), Flag.optional)
    },
    ({ client, json: asJson, flags }) =>
      Effect.gen(function* () {
        const payload = { slug: flags.slug, name: Option.getOrElse(flags.name, () => flags.slug) }
        const made = yield* call(client.asOwner.orgs.create({ payload, headers: {} }))
        yield* asJson
          ? json(made)
          : say(`"${made.slug}" made; it is yours. Commands reach it with --org ${made.slug}`)
      })
  )
  .pipe(Command.withDescription("Create an organization that you own"))

const orgsUpdate = ofOrganizations
  .command(
    "update",
    {
      name: Flag.String("name").pipe(Flag.withDescription("New name"), Flag.optional),
      slug: Flag.String("slug").pipe(
        Flag.withDescription("New slug; manifests and paths that name the old one must follow"),
        Flag.optional
      )
    },
    ({ client: { asOwner, login, org }, at, json: asJson, flags }) =>
      Effect.gen(function* () {
        const payload = given(flags)
        if (Object.keys(payload).length === 0)
          return yield* failure("Nothing to change: give --name or --slug", exitCodes.usage)
        const { body } = yield* call(asOwner.orgs.update({ ...(yield* at), payload, headers: {} }))
        if (body.slug !== org) yield* renameOrganization(login.apiUrl, org, body.slug)
        yield* asJson ? json(body) : say(`It is "${body.name}" with the slug "${body.slug}" now`)
      })
  )
  .pipe(Command.withDescription("Change the name or the slug of the organization"))

const orgsDelete = ofOrganizations
  .command("delete", { yes }, ({ client: { asOwner }, at, json: asJson, flags }) =>
    Effect.gen(function* () {
      const { params } = yield* at
      const { body } = yield* call(asOwner.orgs.get({ params }))
      yield* confirmName(
        `This deletes the organization "${body.slug}" and everything in it, databases included.`,
        body.slug,
        flags.yes
      )
      const done = yield* call(asOwner.orgs.delete({ params, headers: {} }))
      yield* asJson ? json(done) : say(`"${body.slug}" is gone; what it had is being removed`)
    })
  )
  .pipe(Command.withDescription("Delete the organization and everything in it"))

export const orgs = Command.make("orgs").pipe(
  Command.withDescription("Organizations"),
  Command.withSubcommands([orgsLs, orgsCreate, orgsUpdate, orgsDelete])
)

const ofMembers = resourceCommands({
  scope: inOrganization,
  noun: "member",
  plural: "members",
  argument: Argument.String("member").pipe(Argument.withDescription("E-mail address or id")),
  list: ({ asOwner }, at) => asOwner.members.list(at),
  nameOf: ({ email }) => email,
  isNamed: ({ email }, named) => email === named.toLowerCase(),
  one: ({ params }, { id }) => ({ params: { ...params, memberId: id } }),
  missing: (name, place) => `${place} has no member "${name}"`
})

const membersLs = ofMembers.ls({
  columns: {
    "E-MAIL": ({ email }) => email,
    ROLE: ({ role }) => role,
    NAME: ({ name }) => name,
    SINCE: ({ createdAt }) => createdAt.slice(0, 10)
  }
})

const membersRole = ofMembers
  .on(
    "set-role",
    { role: Argument.Literals("role", Role.literals) },
    ({ one }, { client, json: asJson, flags }) =>
      Effect.gen(function* () {
        const changed = yield* call(client.asOwner.members.update({ ...one, payload: { role: flags.role } }))
        yield* asJson ? json(changed) : say(`${changed.email} is ${changed.role} now`)
      })
  )
  .pipe(Command.withDescription("Change the role of a member"))

const membersRm = ofMembers
  .on("rm", { yes }, ({ name: email, one }, { client: { asOwner, org }, json: asJson, flags }) =>
    Effect.gen(function* () {
      yield* confirmName(
        `This takes ${email} out of "${org}"; the API keys that ${email} made stop working.`,
        email,
        flags.yes
      )
      const done = yield* call(asOwner.members.remove(one))
      yield* asJson ? json(done) : say(`${email} is no member of "${org}" any more`)
    })
  )
  .pipe(Command.withAlias("remove"), Command.withDescription("Remove a member"))

export const members = Command.make("members").pipe(
  Command.withDescription("Who belongs to the organization"),
  Command.withSubcommands([membersLs, membersRole, membersRm])
)

const ofInvitations = resourceCommands({
  scope: inOrganization,
  noun: "invitation",
  plural: "invitations",
  argument: Argument.String("invitation").pipe(Argument.withDescription("E-mail address or id")),
  list: ({ asOwner }, at) => asOwner.invitations.list(at),
  nameOf: ({ email }) => email,
  isNamed: ({ email }, named) => email === named.toLowerCase(),
  one: ({ params }, { id }) => ({ params: { ...params, invitationId: id } }),
  missing: (name) => `There is no open invitation for "${name}"`
})

const invitationsLs = ofInvitations
  .ls({
    columns: {
      "E-MAIL": ({ email }) => email,
      ROLE: ({ role }) => role,
      EXPIRES: ({ expiresAt }) => expiresAt
    },
    empty: () => "Nobody is invited just now"
  })
  .pipe(Command.withDescription("List invitations that nobody has accepted yet"))

const invitationsCreate = ofInvitations
  .command(
    "create",
    {
      email: Argument.String("email"),
      role: Flag.Literals("role", ["member", "admin"]).pipe(Flag.withDefault("member"))
    },
    ({ client, at, json: asJson, flags: payload }) =>
      Effect.gen(function* () {
        const made = yield* call(client.asOwner.invitations.create({ ...(yield* at), payload, headers: {} }))
        yield* asJson
          ? json(made)
          : say(`${made.email} gets a mail with a link, good until ${made.expiresAt.slice(0, 10)}`)
      })
  )
  .pipe(Command.withDescription("Invite somebody by e-mail"))

const invitationsRevoke = ofInvitations
  .on("revoke", { yes }, ({ name: email, one }, { client, json: asJson, flags }) =>
    Effect.gen(function* () {
      yield* confirmName(`The link that ${email} has works no more.`, email, flags.yes)
      const done = yield* call(client.asOwner.invitations.revoke(one))
      yield* asJson ? json(done) : say(`The invitation for ${email} is taken back`)
    })
  )
  .pipe(Command.withDescription("Take an invitation back"))

export const invitations = Command.make("invitations").pipe(
  Command.withDescription("Inviting people"),
  Command.withSubcommands([invitationsLs, invitationsCreate, invitationsRevoke])
)
