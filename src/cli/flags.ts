/** Flags that several commands take, and how a command is run with them. */

import * as Argument from "effect/cli/Argument"
import * as Flag from "effect/cli/Flag"
import * as Prompt from "effect/cli/Prompt"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { looksLikeUid } from "#schemas/names.ts"
import { Client, call } from "./client.ts"
import { type CliFailure, cancelled, exitCodes, failure } from "./failure.ts"
import { Invocation } from "./invocation.ts"
import { memberCredential, readLogin } from "./login.ts"
import { say } from "./output.ts"
import { itemsOf } from "./pages.ts"
import type { Summary } from "./watch.ts"

export const connection = {
  org: Flag.String("org").pipe(
    Flag.withDescription("Organization (else SVC_ORG, svc.yaml, the stored login)"),
    Flag.optional
  ),
  apiUrl: Flag.String("api-url").pipe(
    Flag.withDescription("Control plane (else SVC_API_URL, svc.yaml, the stored login)"),
    Flag.optional
  )
}
export const asJson = Flag.Boolean("json").pipe(
  Flag.withDescription("Print JSON for programs"),
  Flag.withDefault(false)
)
export const yes = Flag.Boolean("yes").pipe(
  Flag.withAlias("y"),
  Flag.withDescription("Do not ask"),
  Flag.withDefault(false)
)
export const waiting = {
  wait: Flag.Boolean("wait").pipe(
    Flag.withDescription("Wait until it is done, showing progress (--no-wait: only ask for it)"),
    Flag.withDefault(true)
  ),
  timeout: Flag.Int("timeout").pipe(
    Flag.withDescription("Seconds to wait; what was asked for goes on afterwards (exit code 7)"),
    Flag.filter(
      (seconds) => seconds > 0,
      () => "must be more than 0"
    ),
    Flag.withDefault(300)
  )
}
export const project = Argument.String("project").pipe(
  Argument.withDescription(
    "Slug or id of the project; . or a folder with a slash in it: the one that its svc.yaml names (svc link)"
  )
)
export const environment = Flag.String("environment").pipe(
  Flag.withAlias("e"),
  Flag.withDescription("Environment (default production)"),
  Flag.withDefault("production")
)
export interface Place {
  readonly project: string
  readonly environment: string
}
export const address = Argument.String("address").pipe(
  Argument.withDescription("project/environment/kind/name as in svc status, or an id")
)

export interface Connection {
  readonly org: Option.Option<string>
  readonly apiUrl: Option.Option<string>
}

/** Runs a command against the control plane that flags, environment and files name. */
export const online = <A, E, R>(flags: Connection, body: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const login = yield* loginOf(flags)
    if (memberCredential(login) === undefined) return yield* failure(login.missing, exitCodes.authentication)
    return yield* Effect.provide(body, Client.layer(login))
  })

export const loginOf = (flags: Connection) =>
  readLogin({ org: Option.getOrUndefined(flags.org), apiUrl: Option.getOrUndefined(flags.apiUrl) })

type Filter = { readonly kind?: string; readonly project?: string; readonly environment?: string }

/** Every resource of the organization, or of a part of it. */
export const resourcesOf = Effect.fnUntraced(function* (filter: Filter) {
  const { asMember, org } = yield* Client
  return yield* itemsOf((page) =>
    call(asMember.resources.list({ params: { orgId: org }, query: { ...filter, ...page } }))
  )
})
export const allResources = resourcesOf({})

/** The resource that an address or an id names. */
export const resolve = Effect.fnUntraced(function* (
  named: string
): Effect.fn.Return<Summary, CliFailure, Client> {
  const { asMember, org } = yield* Client
  if (looksLikeUid(named)) {
    const answer = yield* call(asMember.resources.get({ params: { orgId: org, uid: named } }))
    return answer.body
  }
  const wanted = named.toLowerCase()
  const found = (yield* allResources).filter(({ address }) => address.toLowerCase() === wanted)
  // What is being deleted gives way to what took its name.
  const [first] = found.sort((a, b) => Number(a.deleting) - Number(b.deleting))
  return (
    first ?? (yield* failure(`There is no resource "${named}"; svc status lists them`, exitCodes.notFound))
  )
})

/** Asks for the name before something is destroyed. Without a terminal only --yes will do. */
export const confirmName = Effect.fnUntraced(function* (what: string, name: string, sure: boolean) {
  if (sure) return
  const { stdin, env } = yield* Invocation
  if (stdin.isTTY !== true || env["CI"] !== undefined) {
    return yield* failure(`${what} Repeat with --yes to do it`, exitCodes.usage)
  }
  yield* say(`${what} Type "${name}" to go on:`)
  const typed = yield* readLine(stdin)
  if (typed !== name) return yield* cancelled
})

const readLine = (stdin: NodeJS.ReadableStream) =>
  Effect.callback<string>((resume) => {
    let text = ""
    const read = (chunk: Buffer) => {
      text += chunk.toString("utf8")
      if (text.includes("\n")) finish()
    }
    const finish = () => {
      stdin.off("data", read)
      stdin.off("end", finish)
      stdin.pause()
      resume(Effect.succeed(text.split("\n", 1)[0]?.trim() ?? ""))
    }
    stdin.on("data", read)
    stdin.on("end", finish)
    return Effect.sync(() => stdin.off("data", read))
  })

/** All of standard input. */
export const readStdin = Effect.flatMap(Invocation, ({ stdin }) =>
  Effect.tryPromise({
    try: async () => {
      const chunks: Array<Buffer> = []
      for await (const chunk of stdin) chunks.push(Buffer.from(chunk))
      return Buffer.concat(chunks)
        .toString("utf8")
        .replace(/\r?\n$/, "")
    },
    catch: () => failure("Standard input cannot be read")
  })
)

/** A secret, from a pipe or typed without being shown; never an argument, which other users could see. */
export const readSecret = (what: string) =>
  Effect.flatMap(Invocation, ({ stdin }) =>
    stdin.isTTY === true
      ? Prompt.run(Prompt.Password({ message: what })).pipe(
          Effect.map(Redacted.value),
          Effect.mapError(() => cancelled)
        )
      : readStdin
  )
