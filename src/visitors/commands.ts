/** `svc access`: who may see the environments of a project, and who is invited. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { AccessMode, isAccessMode } from "#schemas/access-policy.ts"
import { EnvironmentSlug } from "#schemas/names.ts"
import { call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { confirmName, resourcesOf, waiting, yes } from "#src/cli/flags.ts"
import { facts, json, out, say, table } from "#src/cli/output.ts"
import { commandIn, inProject, resourceCommands } from "#src/cli/resource-commands.ts"
import { type Waiting, waitForOne } from "#src/cli/wait.ts"
import type { AccessPolicyView } from "./api.ts"

const command = commandIn(inProject)

type Policy = (typeof AccessPolicyView)["Type"]

const inWords: Readonly<Record<AccessMode, string>> = {
  public: "everybody",
  authenticated: "whoever has an account",
  organization: "members of the organization",
  invite_only: "invited addresses"
}

const policyFacts = (policy: Policy) =>
  facts([
    ["Mode", policy.mode],
    ["Previews", policy.previewMode],
    ...Object.entries(policy.effective).map(([slug, mode]) => [slug, inWords[mode]] as const)
  ])

const get = command("get", {}, ({ client, at, json: asJson }) =>
  Effect.gen(function* () {
    const policy = yield* call(client.asMember.access.get(yield* at))
    yield* asJson ? json(policy) : out(policyFacts(policy))
  })
).pipe(Command.withDescription("Who may see the environments of a project"))

/** Waits until the policy is in force at every address. */
const inForce = Effect.fnUntraced(function* (project: string, flags: Waiting) {
  const found = yield* resourcesOf({ kind: "AccessPolicy", project })
  const policy = found.find(({ deleting }) => !deleting)
  if (flags.wait && policy !== undefined) yield* waitForOne(policy.uid, flags)
})

const isSlug = Schema.is(EnvironmentSlug)

/** `staging=organization`; `staging=` takes what was said of it back. */
const withEnvironments = (before: Policy["environments"], given: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const environments = new Map(Object.entries(before))
    for (const text of given) {
      const [slug = "", mode] = text.split("=", 2)
      if (!isSlug(slug) || mode === undefined || (mode !== "" && !isAccessMode(mode))) {
        const message = `--environment takes an environment and ${AccessMode.literals.join(", ")}, such as staging=organization, not "${text}"`
        return yield* failure(message, exitCodes.usage)
      }
      if (isAccessMode(mode)) environments.set(slug, mode)
      else environments.delete(slug)
    }
    return Object.fromEntries(environments)
  })

const set = command(
  "set",
  {
    ...waiting,
    mode: Flag.Literals("mode", AccessMode.literals).pipe(
      Flag.withDescription("Who may see an environment of which nothing else is said"),
      Flag.optional
    ),
    preview: Flag.Literals("preview", [...AccessMode.literals, "inherit"]).pipe(
      Flag.withDescription("Who may see preview; inherit: the same as the mode"),
      Flag.optional
    ),
    environment: Flag.String("environment").pipe(
      Flag.withAlias("e"),
      Flag.withDescription(
        "A mode for one environment, such as staging=organization; staging= takes it back. May be given several times"
      ),
      Flag.atLeast(0)
    )
  },
  ({ client: { asMember }, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      if (Option.isNone(flags.mode) && Option.isNone(flags.preview) && flags.environment.length === 0)
        return yield* failure("Say what to change; --help lists it", exitCodes.usage)
      const place = yield* at
      // What is not named stays as it is.
      const before = yield* call(asMember.access.get(place))
      const payload = {
        mode: Option.getOrElse(flags.mode, () => before.mode),
        previewMode: Option.getOrElse(flags.preview, () => before.previewMode),
        environments: yield* withEnvironments(before.environments, flags.environment)
      }
      const after = yield* call(asMember.access.set({ ...place, payload }))
      yield* inForce(where.project, flags)
      yield* asJson ? json(after) : out(policyFacts(after))
    })
).pipe(
  Command.withDescription("Say who may see the environments of a project"),
  Command.withExamples([
    {
      command: "svc access set shop --preview organization",
      description: "Previews for members only"
    },
    {
      command: "svc access set shop --mode public -e staging=invite_only",
      description: "One environment for invited addresses"
    }
  ])
)

const unset = command("unset", { yes }, ({ client, at, where, json: asJson, flags }) =>
  Effect.gen(function* () {
    const place = yield* at
    yield* confirmName(
      `This lets everybody see all environments of "${where.project}".`,
      where.project,
      flags.yes
    )
    yield* call(client.asMember.access.delete({ ...place, headers: {} }))
    yield* asJson ? json({ deleted: true }) : say(`Everybody may see ${where.project}`)
  })
).pipe(Command.withDescription("Take the policy back: everybody may see the project"))

const email = Argument.String("email").pipe(Argument.withDescription("E-mail address of an account"))
const invitations = resourceCommands({
  scope: inProject,
  noun: "invited address",
  plural: "invited addresses",
  argument: email,
  list: ({ asMember }, at) => asMember.access.listInvitations(at),
  nameOf: (invitation) => invitation.email,
  isNamed: (invitation, named) => invitation.email === named.normalize("NFKC").toLowerCase(),
  one: ({ params }, { id }) => ({ params: { ...params, invitationId: id } })
})

const invited = command("invited", {}, ({ client, at, where, json: asJson }) =>
  Effect.gen(function* () {
    const found = yield* call(client.asMember.access.listInvitations(yield* at))
    if (asJson) return yield* json(found)
    if (found.length === 0) return yield* say(`Nobody is invited to ${where.project}`)
    yield* out(
      table(
        ["EMAIL", "INVITED"],
        found.map((one) => [one.email, one.createdAt])
      )
    )
  })
).pipe(Command.withDescription("List invited addresses"))

const invite = command("invite", { email }, ({ client, at, where, json: asJson, flags }) =>
  Effect.gen(function* () {
    const request = { ...(yield* at), headers: {}, payload: { email: flags.email } }
    const made = yield* call(client.asMember.access.invite(request))
    yield* asJson
      ? json(made)
      : say(`${made.email} may see the environments of ${where.project} that are invite_only`)
  })
).pipe(
  Command.withDescription("Let the account with an e-mail address see what is invite_only; no mail is sent")
)

const uninvite = invitations
  .on("uninvite", {}, ({ name, one }, { client, where, json: asJson }) =>
    Effect.gen(function* () {
      yield* call(client.asMember.access.revokeInvitation(one))
      yield* asJson
        ? json({ removed: name })
        : say(`${name} is not invited to ${where.project} any more; who is there now leaves within 5 minutes`)
    })
  )
  .pipe(Command.withDescription("Take an invitation back"))

export const access = Command.make("access").pipe(
  Command.withDescription("Who may see the environments of a project"),
  Command.withSubcommands([get, set, unset, invite, invited, uninvite])
)
