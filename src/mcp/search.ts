/**
 * The tool `search`: operations by words. Scores are counted over words kept in memory; a word weighs by the place where
 * it stands, and less the more operations have it.
 */
import * as Schema from "effect/Schema"
import { isObject, type JsonObject } from "#src/api/definition/json-schema.ts"
import { type Caller, refusal } from "./caller.ts"
import type { Catalogue, Entry } from "./catalogue.ts"

/** How much a word counts, by where it stands. */
const weights = { id: 6, summary: 4, about: 2, parameters: 1, body: 1 } as const

/** Characters of an answer in which operations are shown in full; what comes after is shown in one line each. */
const fullBudget = 6_000
const mostFound = 25
const usualFound = 8

export const Search = Schema.Struct({
  query: Schema.String.check(Schema.isMaxLength(200)).annotateKey({
    description: "Words on what is to be done, or the id of an operation, which is then described in full"
  }),
  limit: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: mostFound })).annotate({
      description: `How many operations to answer; ${usualFound} by default`
    })
  ),
  offset: Schema.optionalKey(
    Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)).annotate({ description: "How many to leave out" })
  )
})

interface Indexed {
  readonly entry: Entry
  readonly weightOf: ReadonlyMap<string, number>
}

export interface Index {
  readonly catalogue: Catalogue
  readonly indexed: ReadonlyArray<Indexed>
  /** In how many operations each word stands. */
  readonly frequency: ReadonlyMap<string, number>
}

export const makeIndex = (catalogue: Catalogue): Index => {
  const indexed = [...catalogue.values()].map((entry) => ({ entry, weightOf: weightsOf(entry) }))
  const frequency = new Map<string, number>()
  for (const { weightOf } of indexed) {
    for (const word of weightOf.keys()) frequency.set(word, (frequency.get(word) ?? 0) + 1)
  }
  return { catalogue, indexed, frequency }
}

export const search = (
  index: Index,
  caller: Caller | undefined,
  { query, limit = usualFound, offset = 0 }: typeof Search.Type
): JsonObject => {
  const exact = index.catalogue.get(query.trim())
  if (exact !== undefined) return { operations: [inFull(exact, caller)], next: howToRun(exact, caller) }
  const found = ranked(index, query)
  const shown = found.slice(offset, offset + limit)
  let left = fullBudget
  const operations = shown.map((entry) => {
    const full = inFull(entry, caller)
    left -= JSON.stringify(full).length
    return left > 0 ? full : inShort(entry, caller)
  })
  const [first] = shown
  return {
    total: found.length,
    operations,
    next:
      first === undefined
        ? "Nothing has these words. Try other ones, such as the name of a kind of resource: database, cache, queue, cron"
        : [
            "Run one with the tool execute.",
            ...(left > 0 ? [] : ["Search an id to see its parameters and body."]),
            ...(offset + shown.length < found.length ? [`More: offset ${offset + shown.length}.`] : [])
          ].join(" ")
  }
}

const ranked = ({ indexed, frequency }: Index, query: string): ReadonlyArray<Entry> => {
  const wanted = [...new Set(wordsOf(query))].slice(0, 20)
  const rarity = (word: string) => Math.log(1 + indexed.length / (frequency.get(word) ?? indexed.length))
  // A word that stands nowhere may be the beginning of one that does, or longer than it.
  const alike = (word: string) =>
    frequency.has(word)
      ? [[word, 1] as const]
      : [...frequency.keys()].flatMap((known) =>
          word.length >= 3 && known.length >= 3 && (known.startsWith(word) || word.startsWith(known))
            ? [[known, 0.5] as const]
            : []
        )
  const meant = wanted.map(alike)
  return indexed
    .map(({ entry, weightOf }) => ({
      entry,
      score: meant.reduce(
        (sum, words) =>
          sum +
          Math.max(0, ...words.map(([word, share]) => (weightOf.get(word) ?? 0) * share * rarity(word))),
        0
      )
    }))
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score || (a.entry.operation.id < b.entry.operation.id ? -1 : 1))
    .map(({ entry }) => entry)
}

const inShort = ({ operation, summary }: Entry, caller: Caller | undefined): JsonObject => {
  const refused = refusal(operation, caller)
  return {
    id: operation.id,
    summary,
    risk: operation.risk,
    ...(refused === undefined ? { allowed: true } : { allowed: false, because: refused })
  }
}

const inFull = (entry: Entry, caller: Caller | undefined): JsonObject => {
  const { operation, parameters, body, shownOnce } = entry
  const placed = (place: "path" | "query") =>
    Object.fromEntries(
      parameters
        .filter((one) => one.in === place)
        .map(({ name, required, description, schema }) => [
          name,
          {
            ...(required ? { required } : {}),
            ...(description === undefined ? {} : { description }),
            ...schema
          }
        ])
    )
  const some = (name: string, value: JsonObject) => (Object.keys(value).length > 0 ? { [name]: value } : {})
  return {
    ...inShort(entry, caller),
    ...(operation.role === null ? {} : { role: operation.role }),
    ...(operation.sensitive ? { sensitive: true } : {}),
    ...(operation.billing ? { needsActiveBilling: true } : {}),
    ...(needsConfirmation(operation) ? { confirm: operation.id } : {}),
    ...some("path", placed("path")),
    ...some("query", placed("query")),
    ...(entry.ifMatch ? { takesIfMatch: true } : {}),
    ...(entry.idempotencyKey ? { takesIdempotencyKey: true } : {}),
    ...(body === undefined ? {} : { body: body.schema, bodyRequired: body.required }),
    ...(shownOnce.length === 0 ? {} : { showsOnce: shownOnce })
  }
}

/** Whether the person is asked before it is run. */
export const needsConfirmation = ({ risk }: Entry["operation"]): boolean =>
  risk === "destructive" || risk === "dangerous"

const howToRun = ({ operation, parameters }: Entry, caller: Caller | undefined): string => {
  const refused = refusal(operation, caller)
  if (refused !== undefined) return refused
  const needed = parameters.filter(({ in: place, required }) => place === "path" && required)
  return [
    `Run it with the tool execute: operation "${operation.id}"`,
    ...(needed.length === 0 ? [] : [`path with ${needed.map(({ name }) => name).join(", ")}`]),
    ...(needsConfirmation(operation) ? ["ask the person first"] : [])
  ].join("; ")
}

const weightsOf = ({ operation, summary, about, parameters, body }: Entry): ReadonlyMap<string, number> => {
  const weightOf = new Map<string, number>()
  const add = (text: string, weight: number) => {
    for (const word of new Set(wordsOf(text))) weightOf.set(word, Math.max(weight, weightOf.get(word) ?? 0))
  }
  add(operation.id, weights.id)
  add(summary, weights.summary)
  add(about, weights.about)
  for (const { name, description = "" } of parameters) add(`${name} ${description}`, weights.parameters)
  if (body !== undefined) add(textIn(body.schema), weights.body)
  return weightOf
}

/** Names and descriptions of a body's fields, the outer ones. */
const textIn = (schema: JsonObject): string => {
  const properties = schema["properties"]
  return isObject(properties)
    ? Object.entries(properties)
        .map(([name, field]) => `${name} ${isObject(field) ? String(field["description"] ?? "") : ""}`)
        .join(" ")
    : ""
}

/** Of no use in telling operations apart. */
const empty: ReadonlySet<string> = new Set(
  "a an and are as at be by can do for from how i in is it its me my of on or our that the their this to we what which with you your".split(
    " "
  )
)

/** In the singular, so that "caches" finds "cache". */
const wordsOf = (text: string): ReadonlyArray<string> =>
  (
    text
      .replaceAll(/([a-z])([A-Z])/g, "$1 $2")
      .toLowerCase()
      .match(/[a-z0-9]+/g) ?? []
  )
    .filter((word) => !empty.has(word))
    .map((word) =>
      word.length > 3 && word.endsWith("ies")
        ? `${word.slice(0, -3)}y`
        : word.length > 3 && word.endsWith("s") && !word.endsWith("ss")
          ? word.slice(0, -1)
          : word
    )
