/**
 * What the operator says of upstreams, `SVC_AI_UPSTREAMS`: for each neutral model the real ones that answer for it, in
 * the order in which they are tried.
 */
import * as fs from "node:fs"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import { AiModel } from "#schemas/ai-gateway.ts"
import { allowedValues } from "#schemas/allowed-values.ts"
import { withDefault } from "#schemas/input.ts"
import { readJson } from "#src/api/json.ts"

const integer = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const Price = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 100_000 }))

export const Upstream = Schema.Struct({
  name: Schema.String.check(
    Schema.isPattern(/^[a-z][a-z0-9-]{0,61}$/, { expected: "lower-case letters, digits and dashes" })
  ).annotateKey({ description: "Shown to users where an upstream is named" }),
  dialect: Schema.Literals(["openai", "anthropic"]),
  address: Schema.String.check(
    Schema.isPattern(/^https?:\/\/[^\s?#]+$/, { expected: "a URL without a query" })
  ).annotateKey({ description: "Base of its paths, such as https://api.openai.com/v1" }),
  model: Schema.NonEmptyString.annotateKey({ description: "The provider's name for it" }),
  key: Schema.NonEmptyString.pipe(Schema.RedactedFromValue),
  prices: Schema.Struct({
    input: Price,
    output: Price,
    cachedInput: Schema.optionalKey(Price)
  }).annotateKey({ description: "US dollars for a million tokens" }),
  limits: withDefault(
    Schema.Struct({
      outputTokens: withDefault(integer(1, 1_000_000), 4_096, "Tokens of the longest answer"),
      concurrency: withDefault(integer(1, 10_000), 256, "Calls at once, of one process"),
      idleSeconds: withDefault(integer(1, 600), 60, "Between two events of an answer"),
      totalSeconds: withDefault(integer(1, 2_700), 900, "For a whole answer"),
      beginSeconds: withDefault(
        integer(1, 600),
        30,
        "Within which an answer begins; a call that ends before it has begun counts as a failure after that"
      ),
      imageTokens: withDefault(integer(0, 1_000_000), 50_000, "As many as it counts for an image at most")
    }),
    {
      outputTokens: 4_096,
      concurrency: 256,
      idleSeconds: 60,
      totalSeconds: 900,
      beginSeconds: 30,
      imageTokens: 50_000
    },
    "What is asked of it at most"
  ),
  maxTokensField: withDefault(
    Schema.Literals(["max_tokens", "max_completion_tokens"]),
    "max_tokens" as const,
    "How it calls the longest answer (dialect openai)"
  ),
  imageUrls: withDefault(
    Schema.Boolean,
    false,
    "Whether it may be sent addresses of images, which it fetches: one in the own network must not"
  )
})
export type Upstream = typeof Upstream.Type

const Upstreams = Schema.Struct(
  Object.fromEntries(
    AiModel.literals.map((model) => [
      model,
      Schema.optionalKey(
        Schema.Array(Upstream).check(
          Schema.isMinLength(1),
          Schema.isMaxLength(16),
          Schema.makeFilter(
            (list: ReadonlyArray<Upstream>) => new Set(list.map(({ name }) => name)).size === list.length,
            { expected: "a list of different names" }
          )
        )
      )
    ])
  )
)
/** A model that stands in none of it has no upstream. */
export type UpstreamsFile = ReadonlyMap<AiModel, ReadonlyArray<Upstream>>

const decode = Schema.decodeUnknownResult(Upstreams, { onExcessProperty: "error", errors: "all" })
const isModel = Schema.is(AiModel)

/** What is found is not repeated: it may be a key. */
const faults = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    switch (issue._tag) {
      case "MissingKey":
        return "is missing"
      case "UnexpectedKey":
        return "is no field that is known"
      default:
        return allowedValues(issue) ?? "is not of the type that it must be"
    }
  },
  checkHook: (issue) => {
    const { expected, message } = issue.filter.annotations ?? {}
    const says = message ?? expected
    return says === undefined ? "has a value that it cannot have" : `must be ${String(says)}`
  }
})

/** The faults of a text, each with where it is. */
export const parseUpstreams = (text: string): Result.Result<UpstreamsFile, ReadonlyArray<string>> => {
  const read = readJson(text)
  if (read === undefined) return Result.fail(["is not valid JSON"])
  if (Result.isFailure(read)) {
    return Result.fail(read.failure.map((one) => `line ${one.line}: ${one.pointer} ${one.message}`))
  }
  const { value, locate } = read.success
  const decoded = decode(value)
  if (Result.isFailure(decoded)) {
    return Result.fail(
      faults(decoded.failure.issue).issues.map(({ path = [], message }) => {
        const keys = path.map((part) => (typeof part === "object" ? part.key : part))
        const at = keys.map((key) => (typeof key === "number" ? key : String(key)))
        return `line ${locate(at)?.line ?? 1}: ${at.join(" › ")} ${message}`
      })
    )
  }
  const entries = Object.entries(decoded.success)
  return Result.succeed(
    new Map(
      entries.flatMap(([model, list]) =>
        isModel(model) && list !== undefined ? [[model, list] as const] : []
      )
    )
  )
}

/** Text that begins with a brace is the list itself; anything else names a file. */
const textOf = (variable: string, value: string): { readonly text: string; readonly where: string } =>
  value.trimStart().startsWith("{")
    ? { text: value, where: variable }
    : { text: fs.readFileSync(value, "utf8"), where: `${value} (${variable})` }

const wrong = (message: string) => Config.fail(new ConfigProvider.SourceError({ message }))

/** The file is read whenever the settings are. */
export const upstreamsOf = (variable: string): Config.Config<UpstreamsFile> =>
  Config.Redacted(variable).pipe(
    Config.withDefault(undefined),
    Config.flatMap((value) => {
      if (value === undefined) return Config.succeed<UpstreamsFile>(new Map())
      let found: ReturnType<typeof textOf>
      try {
        found = textOf(variable, Redacted.value(value))
      } catch {
        return wrong(`${variable} names a file that cannot be read`)
      }
      const parsed = parseUpstreams(found.text)
      return Result.isSuccess(parsed)
        ? Config.succeed(parsed.success)
        : wrong(`${found.where}: ${parsed.failure.slice(0, 10).join("; ")}`)
    })
  )

/** In whole billionths of a US dollar, of which a price of one dollar a million tokens is a thousand a token. */
export const costOf = (
  { prices }: Pick<Upstream, "prices">,
  {
    input,
    cachedInput,
    output
  }: { readonly input: number; readonly cachedInput: number; readonly output: number }
): number => {
  const cached = prices.cachedInput ?? prices.input
  return Math.ceil(
    ((input - cachedInput) * prices.input + cachedInput * cached + output * prices.output) * 1_000
  )
}
