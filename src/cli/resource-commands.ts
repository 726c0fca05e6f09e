/**
 * Commands about one collection of the API, such as the caches of an environment, made from one description of it: which
 * flags say where it is, how it is listed, and how people name one of its things. `ls`, `get`, `update` and `delete` are
 * the same for every collection; `command` and `on` make what only one collection has.
 */
import * as path from "node:path"
import type * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import { Client, call } from "./client.ts"
import { type CliFailure, exitCodes, failure } from "./failure.ts"
import {
  asJson,
  confirmName,
  connection,
  environment,
  online,
  type Place,
  project,
  waiting,
  yes
} from "./flags.ts"
import { Invocation } from "./invocation.ts"
import { canonicalUrl, projectFile } from "./login.ts"
import { facts as factLines, json, out, paint, say, table } from "./output.ts"
import { deleted } from "./service.ts"
import { type Given, given } from "./settings-flags.ts"
import { shellWord } from "./shell-word.ts"
import { waitForOne } from "./wait.ts"

type Config = Command.Command.Config
type Values<C> = Command.Command.Config.InferValue<C>
type Caller = (typeof Client)["Service"]

/** Where collections are: the flags and arguments that say so, and what requests and people call the place. */
export interface Scope<Where extends Config, At> {
  readonly flags: Where
  readonly at: (where: Values<Where>) => Effect.Effect<At, CliFailure, Client>
  readonly text: (where: Values<Where>, org: string) => string
  /** With the folder's own project in place of ".". */
  readonly linked?: (where: Values<Where>) => Effect.Effect<Values<Where>, CliFailure, Client>
}

/** No slug has a slash in it: that is a folder, whose `svc.yaml` names its project. */
export const isFolder = (project: string): boolean => project.includes("/")

const projectOf = Effect.fnUntraced(function* (named: string) {
  const { login } = yield* Client
  if (!isFolder(named)) return login.project
  const { cwd } = yield* Invocation
  const found = yield* projectFile(path.resolve(cwd, named))
  if (found === undefined) return undefined
  const { file, apiUrl, organization } = found
  const elsewhere = (what: string, flag: string) =>
    failure(`${file} names ${what}, which is not where this command goes: say ${flag}`, exitCodes.usage)
  if (organization !== undefined && organization !== login.organization)
    return yield* elsewhere(`the organization ${organization}`, `--org ${shellWord(organization)}`)
  if (apiUrl !== undefined && (yield* canonicalUrl(apiUrl, file)) !== login.apiUrl)
    return yield* elsewhere(apiUrl, `--api-url ${shellWord(apiUrl)}`)
  return found.project
})

const linked = Effect.fnUntraced(function* <W extends { readonly project: string }>(where: W) {
  if (where.project !== "." && !isFolder(where.project)) return where
  const project = yield* projectOf(where.project)
  return project === undefined
    ? yield* failure(
        `No svc.yaml in ${where.project === "." ? "this folder" : where.project} or above names a project; svc link does it`,
        exitCodes.usage
      )
    : { ...where, project }
})

export const inOrganization = {
  flags: {},
  at: () => Effect.map(Client, ({ org }) => ({ params: { orgId: org } })),
  text: (_: unknown, org: string) => `"${org}"`
}
export const inProject = {
  flags: { project },
  at: (where: { readonly project: string }) =>
    Effect.map(Client, ({ org }) => ({ params: { orgId: org, projectId: where.project } })),
  text: (where: { readonly project: string }) => where.project,
  linked: linked<{ readonly project: string }>
}
export const inEnvironment = {
  flags: { project, environment },
  at: (where: Place) =>
    Effect.map(Client, ({ org }) => ({
      params: { orgId: org, projectId: where.project },
      query: { environment: where.environment }
    })),
  text: (where: Place) => `${where.project}/${where.environment}`,
  linked: linked<Place>
}

/** What a command is given to run with. */
export interface Request<Where, At, Own> {
  readonly client: Caller
  readonly where: Where
  /** The same as it was given, where a folder may stand for its project. */
  readonly given: Where
  /** The request parameters of the place. */
  readonly at: Effect.Effect<At, CliFailure, Client>
  /** Whether programs read what is printed. */
  readonly json: boolean
  /** The flags and arguments that only this command has. */
  readonly flags: Own
}

/** Makes commands at a place: each takes the flags of the connection, of the place, and `--json`. */
export const commandIn =
  <const Where extends Config, At>(scope: Scope<Where, At>) =>
  <const Name extends string, const Own extends Config, E, R>(
    name: Name,
    own: Own,
    run: (request: Request<Values<Where>, At, Values<Own>>) => Effect.Effect<void, E, R>
  ) =>
    Command.make(name, { connection, where: scope.flags, json: asJson, own }, (flags) =>
      online(
        flags.connection,
        Effect.flatMap(
          Effect.all([Client, scope.linked?.(flags.where) ?? Effect.succeed(flags.where)]),
          ([client, where]) =>
            run({
              client,
              where,
              given: flags.where,
              at: Effect.suspend(() => scope.at(where)),
              json: flags.json,
              flags: flags.own
            })
        )
      )
    )

interface Collection<Where extends Config, At, Item, One> {
  readonly scope: Scope<Where, At>
  readonly noun: string
  readonly plural: string
  /** How people name one of its things. */
  readonly argument: Argument.Argument<string>
  readonly list: (client: Caller, at: At) => Effect.Effect<ReadonlyArray<Item>, unknown>
  /** What a thing is called; it is found by this and by its id. */
  readonly nameOf: (item: Item) => string
  /** Whether people mean this one, where that is not to write its name. */
  readonly isNamed?: (item: Item, named: string) => boolean
  /** The parameters of requests about one of its things. */
  readonly one: (at: At, item: Item) => One
  /** What is said when there is none of a name. */
  readonly missing?: (name: string, place: string) => string
}

/** What the name in a command stands for. */
export interface Found<Item, One> {
  readonly item: Item
  readonly name: string
  readonly one: One
}

const nothingNamed = failure("Say what to change; --help lists it", exitCodes.usage)

export const resourceCommands = <
  const Where extends Config,
  At,
  Item extends { readonly id: string; readonly createdAt?: string },
  One
>(
  collection: Collection<Where, At, Item, One>
) => {
  const { scope, noun, plural, argument, nameOf } = collection
  const isNamed = collection.isNamed ?? ((item: Item, named: string) => nameOf(item) === named)
  const command = commandIn(scope)
  const list = Effect.fnUntraced(function* (at: At) {
    return yield* call(collection.list(yield* Client, at))
  })

  /** Finds by id or name. What is being deleted gives way to what took its name. */
  const find = Effect.fnUntraced(function* (
    named: string,
    {
      where,
      at: place
    }: { readonly where: Values<Where>; readonly at: Effect.Effect<At, CliFailure, Client> }
  ): Effect.fn.Return<Found<Item, One>, CliFailure, Client> {
    const { org } = yield* Client
    const at = yield* place
    const items = yield* list(at)
    const item =
      items.find(({ id }) => id === named) ??
      items
        .filter((one) => isNamed(one, named))
        .sort((a, b) => (b.createdAt ?? "").localeCompare(a.createdAt ?? ""))[0]
    if (item !== undefined) return { item, name: nameOf(item), one: collection.one(at, item) }
    const text = scope.text(where, org)
    return yield* failure(
      collection.missing?.(named, text) ?? `There is no ${noun} "${named}" in ${text}`,
      exitCodes.notFound
    )
  })

  /** Makes a command about one thing of the collection. */
  const on = <const Name extends string, const Own extends Config, E, R>(
    name: Name,
    own: Own,
    run: (
      found: Found<Item, One>,
      request: Request<Values<Where>, At, Values<Own>>
    ) => Effect.Effect<void, E, R>
  ) =>
    command(name, { name: argument, own }, (request) =>
      Effect.flatMap(find(request.flags.name, request), (found) =>
        run(found, { ...request, flags: request.flags.own })
      )
    )

  /** Columns are in the order in which they stand. */
  const ls = (options: {
    readonly columns: Readonly<Record<string, (item: Item) => string>>
    /** Said where there is nothing. */
    readonly empty?: (place: string) => string
  }) =>
    command("ls", {}, ({ where, at, json: asJson }) =>
      Effect.gen(function* () {
        const { org } = yield* Client
        const items = yield* list(yield* at)
        if (asJson) return yield* json(items)
        const place = scope.text(where, org)
        if (items.length === 0)
          return yield* say(options.empty?.(place) ?? `There are no ${plural} in ${place}`)
        const cells = Object.values(options.columns)
        yield* out(
          table(
            Object.keys(options.columns),
            items.map((item) => cells.map((cell) => cell(item)))
          )
        )
      })
    ).pipe(Command.withAlias("list"), Command.withDescription(`List ${plural}`))

  const get = (facts: (item: Item) => ReadonlyArray<readonly [string, string]>) =>
    on("get", {}, ({ item }, { json: asJson }) => (asJson ? json(item) : out(factLines(facts(item))))).pipe(
      Command.withDescription(`Show ${withArticle(noun)}`)
    )

  /** A change of what flags name. Where nothing is named, nothing is asked. */
  const update = <const Settings extends Config, Payload extends object, After>(options: {
    readonly settings: Settings
    /** Whether the command ends when the change is in force. */
    readonly waits: boolean
    readonly payload: (
      settings: Given<Values<Settings>>,
      item: Item
    ) => Effect.Effect<Payload, CliFailure, Command.Environment>
    readonly send: (
      client: Caller,
      request: One & { readonly payload: Payload }
    ) => Effect.Effect<After, unknown>
    /** The thing as it is after the change, of what the request answers. */
    readonly changed: (answer: After) => Item
    readonly say?: (item: Item) => string
  }) =>
    command(
      "update",
      { waiting: options.waits ? [waiting] : [], name: argument, settings: options.settings },
      (request) =>
        Effect.gen(function* () {
          const client = yield* Client
          const settings = given(request.flags.settings)
          if (Object.keys(settings).length === 0) return yield* nothingNamed
          const { item, name, one } = yield* find(request.flags.name, request)
          const payload = yield* options.payload(settings, item)
          if (Object.keys(payload).length === 0) return yield* nothingNamed
          const after = options.changed(yield* call(options.send(client, { ...one, payload })))
          const [waits] = request.flags.waiting
          if (waits?.wait === true) yield* waitForOne(item.id, waits)
          if (request.json)
            return yield* json(waits?.wait === true ? (yield* find(item.id, request)).item : after)
          yield* say(
            options.say?.(after) ??
              (waits?.wait === false
                ? `The change of ${name} is stored`
                : `${name} ${paint("green", "is changed")}`)
          )
        })
    ).pipe(Command.withDescription(`Change ${/^[aeiou]/i.test(noun) ? "an" : "a"} ${noun}`))

  /** The deletion of a resource, which goes on after the request. */
  const remove = (options: {
    /** What somebody agrees to. */
    readonly warning: (name: string, where: Values<Where>) => string
    readonly send: (client: Caller, one: One) => Effect.Effect<unknown, unknown>
    readonly address: (item: Item, where: Values<Where>) => string
  }) =>
    on("delete", { ...waiting, yes }, ({ item, name, one }, { where, json: asJson, flags }) =>
      Effect.gen(function* () {
        yield* confirmName(options.warning(name, where), name, flags.yes)
        yield* call(options.send(yield* Client, one))
        yield* deleted(item.id, options.address(item, where), { ...flags, json: asJson })
      })
    ).pipe(Command.withAlias("rm"), Command.withDescription(`Delete ${withArticle(noun)}`))

  return { command, find, list, on, ls, get, update, remove }
}

const withArticle = (noun: string): string => `${/^[aeio]/i.test(noun) ? "an" : "a"} ${noun}`
