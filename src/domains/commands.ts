/** `svc domains`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { Client, call } from "#src/cli/client.ts"
import { environment, waiting } from "#src/cli/flags.ts"
import { json, out, paint, say } from "#src/cli/output.ts"
import { inProject, resourceCommands } from "#src/cli/resource-commands.ts"
import { given } from "#src/cli/settings-flags.ts"
import { waitForOne } from "#src/cli/wait.ts"
import type { DomainView } from "./api.ts"

type View = (typeof DomainView)["Type"]

const hostname = Argument.String("hostname").pipe(Argument.withDescription("Such as www.example.com"))
const { command, on, ls, get, update, remove } = resourceCommands({
  scope: inProject,
  noun: "custom domain",
  plural: "custom domains",
  argument: hostname,
  list: ({ asMember }, at) => asMember.domains.list(at),
  nameOf: (domain) => domain.hostname,
  isNamed: (domain, named) => domain.hostname === named || domain.displayName === named,
  one: ({ params }, { id }) => ({ params: { ...params, domainId: id }, headers: {} })
})

/** DNS may take days, so nothing waits for it unless asked to. */
const untilActive = {
  wait: Flag.Boolean("wait").pipe(
    Flag.withDescription("Wait until it is active, showing what it waits for"),
    Flag.withDefault(false)
  ),
  timeout: waiting.timeout
}

const redirectTo = Flag.String("redirect-to").pipe(
  Flag.withDescription("Another domain of the environment, to which requests are sent on")
)
const hsts = Flag.Int("hsts").pipe(
  Flag.withDescription("Seconds for which browsers keep to https (Strict-Transport-Security); 0: not at all"),
  Flag.optional
)

const statusText = ({ status }: View): string =>
  paint(status === "active" ? "green" : status === "failed" ? "red" : "yellow", status)

/** What the owner of the domain does next, or waits for. */
const nextStep = (domain: View): string => {
  switch (domain.status) {
    case "pending_dns":
      return domain.instructions
    case "pending_ssl":
      return "Nothing: its certificate is on its way"
    case "active":
      return `Nothing: https://${domain.hostname} is served`
    case "failed":
      return "Mend what is wrong and check it again, or remove it"
  }
}

const factsOf = (domain: View): ReadonlyArray<readonly [string, string]> => [
  [
    "Domain",
    domain.displayName === domain.hostname ? domain.hostname : `${domain.hostname} (${domain.displayName})`
  ],
  ["Id", domain.id],
  ["Environment", domain.environment],
  ["Status", statusText(domain)],
  ...(domain.verificationErrors === null ? [] : [["Found", domain.verificationErrors] as const]),
  ["Next", nextStep(domain)],
  ...(domain.status === "pending_dns" ? [] : [["DNS", domain.instructions] as const]),
  ...(domain.redirectTo === null ? [] : [["Sends on to", domain.redirectTo] as const]),
  ["HSTS", domain.hstsSeconds === 0 ? "off" : `${domain.hstsSeconds} s`],
  ...(domain.certificateExpiresAt === null
    ? []
    : [["Certificate until", domain.certificateExpiresAt] as const]),
  ["Added", domain.createdAt]
]

const list = ls({
  columns: {
    DOMAIN: (domain) => domain.hostname,
    ENVIRONMENT: (domain) => domain.environment,
    STATUS: statusText,
    FOUND: (domain) => domain.verificationErrors ?? ""
  },
  empty: (place) => `There are no custom domains in ${place}; add one with: svc domains add ${place} HOSTNAME`
})

const show = get(factsOf).pipe(
  Command.withAlias("show"),
  Command.withDescription("Show a custom domain, with its next step")
)

const read = Effect.fnUntraced(function* (request: {
  readonly params: { readonly orgId: string; readonly projectId: string; readonly domainId: string }
}) {
  const { asMember } = yield* Client
  return (yield* call(asMember.domains.get(request))).body
})

/** Tells what became of a domain, and waits for it where that was asked for. */
const tell = Effect.fnUntraced(function* (
  domain: View,
  params: { readonly orgId: string; readonly projectId: string },
  flags: { readonly wait: boolean; readonly timeout: number },
  asJson: boolean
) {
  const told = flags.wait && domain.status !== "active"
  if (told && !asJson) yield* say(`${domain.hostname} is ${statusText(domain)}. ${nextStep(domain)}`)
  if (told) yield* waitForOne(domain.id, flags)
  const now = told ? yield* read({ params: { ...params, domainId: domain.id } }) : domain
  yield* asJson ? json(now) : out(tableOf(now))
})
const tableOf = (domain: View) =>
  [
    `${domain.hostname} is ${statusText(domain)}`,
    ...(domain.verificationErrors === null ? [] : [domain.verificationErrors]),
    nextStep(domain)
  ].join("\n")

const add = command(
  "add",
  {
    ...untilActive,
    hostname,
    environment,
    options: { redirectTo: redirectTo.pipe(Flag.optional), hstsSeconds: hsts }
  },
  ({ client, at, where, json: asJson, flags }) =>
    Effect.gen(function* () {
      const place = yield* at
      const { hostname, environment, options } = flags
      const payload = { hostname, environment, ...given(options) }
      const made = yield* call(client.asMember.domains.add({ ...place, headers: {}, payload }))
      yield* tell(made, place.params, flags, asJson)
      if (!asJson && !flags.wait)
        yield* say(
          `It goes on by itself; look at once with: svc domains check ${where.project} ${made.hostname}`
        )
    })
).pipe(
  Command.withDescription("Add a custom domain, and say which DNS records to create"),
  Command.withExamples([
    { command: "svc domains add shop www.example.com --wait", description: "Add one and follow it" }
  ])
)

const check = on("check", untilActive, ({ one: { params } }, { client, json: asJson, flags }) =>
  Effect.gen(function* () {
    const checked = yield* call(client.asMember.domains.check({ params }))
    yield* tell(checked, params, flags, asJson)
  })
).pipe(Command.withDescription("Look at a custom domain now, and say what it waits for"))

const change = update({
  settings: {
    redirectTo: redirectTo.pipe(
      Flag.withDescription("Another domain of the environment, or `none`: requests are answered"),
      Flag.optional
    ),
    hstsSeconds: hsts
  },
  waits: false,
  payload: ({ redirectTo, ...settings }) =>
    Effect.succeed({
      ...settings,
      ...(redirectTo === undefined ? {} : { redirectTo: redirectTo === "none" ? null : redirectTo })
    }),
  send: ({ asMember }, request) => asMember.domains.update(request),
  changed: ({ body }) => body
}).pipe(Command.withDescription("Change where a custom domain sends requests on to, and HSTS"))

const rm = remove({
  warning: (name) => `This takes the custom domain "${name}" out of service.`,
  send: ({ asMember }, one) => asMember.domains.remove(one),
  address: ({ hostname, environment }, { project }) => `${project}/${environment}/Domain/${hostname}`
}).pipe(Command.withDescription("Remove a custom domain"))

export const domains = Command.make("domains").pipe(
  Command.withDescription("Custom domains"),
  Command.withSubcommands([list, show, add, check, change, rm])
)
