/**
 * What DNS says, asked of name servers directly: the machine's own file of hosts has no part in it, and nothing is
 * remembered from one question to the next.
 *
 * An answer that there is nothing is an answer. Every other failure (SERVFAIL, a refusal, silence) is `DnsUnknown`: it
 * tells nothing of the name, so whoever asks leaves everything as it was.
 *
 * Answers come from whoever operates a name: they are bounded in number and length here, and names in them are brought
 * into one form. What they hold is to be compared, never to be trusted.
 */
import { promises as dns } from "node:dns"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import { RateLimits } from "#src/access/RateLimits.ts"
import { answered } from "#src/engine/answered.ts"
import { settings } from "../settings.ts"

/** No name server answered the question. */
export class DnsUnknown extends Schema.TaggedError<DnsUnknown>()("DnsUnknown", {
  /** A sentence for users: which name, which type of record, and why. */
  message: Schema.String
}) {}

/** Records of one type. None: `exists` tells whether the name has records of other types, or is not there (NXDOMAIN). */
export interface Answer<out A> {
  readonly records: ReadonlyArray<A>
  readonly exists: boolean
}

/** A record of type CAA (RFC 8659). */
export interface CaaRecord {
  /** Whoever does not know the tag must not issue. */
  readonly critical: boolean
  /** `issue`, `issuewild`, `iodef` or another one, in lower case. */
  readonly tag: string
  readonly value: string
}

export interface DnsResolver {
  /** Where an alias leads, one step of the way. */
  readonly cname: (name: string) => Effect.Effect<Answer<string>, DnsUnknown>
  /** IPv4 and IPv6 addresses, with aliases followed by the name server. */
  readonly addresses: (name: string) => Effect.Effect<Answer<string>, DnsUnknown>
  /** Each text in one piece. */
  readonly txt: (name: string) => Effect.Effect<Answer<string>, DnsUnknown>
  /** Of this very name: climbing to its parents (RFC 8659, section 3) is the caller's. */
  readonly caa: (name: string) => Effect.Effect<Answer<CaaRecord>, DnsUnknown>
}

export class Resolver extends Context.Service<
  Resolver,
  {
    /**
     * Asks for an organization, which has so many questions a minute; what it asks beyond them is `DnsUnknown` without a
     * question. Null: for the platform itself.
     */
    readonly of: (orgId: string | null) => DnsResolver
  }
>()("svc/domains/Resolver") {
  /** Asks the name servers of the settings. */
  static readonly layer = Layer.effect(
    Resolver,
    Effect.gen(function* () {
      const limits = yield* RateLimits
      const { dnsServers, orgQuestions } = yield* settings
      const mayAsk = (orgId: string) =>
        limits.take(`dns:${orgId}`, orgQuestions).pipe(
          answered("count a question to name servers", storeMs),
          Effect.map(({ allowed }) => allowed),
          // The limit keeps one organization from asking for all; without the store there is little to ask anyhow.
          Effect.catch(() => Effect.succeed(true))
        )
      const spent = new DnsUnknown({
        message: `Name servers are asked ${orgQuestions} questions a minute for one organization, which its domains have used up; this one is looked at later`
      })
      return Resolver.of({
        of: (orgId) =>
          make(
            dnsServers,
            orgId === null
              ? Effect.void
              : Effect.flatMap(mayAsk(orgId), (may) => (may ? Effect.void : Effect.fail(spent)))
          )
      })
    })
  )
}

/**
 * Questions of this process at a time; others wait for their turn. More than all reconciles and orders of a process can
 * ask at once, which are shared fairly among organizations: silent name servers of one do not keep others waiting.
 */
const together = Semaphore.makeUnsafe(64)
/** How long the count of an organization's questions may take. */
const storeMs = 5_000
/** How long one question may take with every try of every name server. */
const patience = "6 seconds"
/** The same with its turn. */
const wholePatience = "10 seconds"
/** Records of one answer that are looked at. */
const most = 50

/** Each question comes after `turn`. */
const make = (servers: ReadonlyArray<string>, turn: Effect.Effect<void, DnsUnknown>): DnsResolver => {
  const ask = <A, B>(
    type: string,
    name: string,
    question: (resolver: dns.Resolver) => Promise<ReadonlyArray<A>>,
    read: (record: A) => B
  ): Effect.Effect<Answer<B>, DnsUnknown> => Effect.andThen(turn, asked(type, name, question, read))
  const asked = <A, B>(
    type: string,
    name: string,
    question: (resolver: dns.Resolver) => Promise<ReadonlyArray<A>>,
    read: (record: A) => B
  ): Effect.Effect<Answer<B>, DnsUnknown> =>
    Effect.suspend(() => {
      // One for each question, so that giving up takes back no other.
      const resolver = new dns.Resolver({ timeout: 1_500, tries: 2 })
      if (servers.length > 0) resolver.setServers(servers)
      return Effect.tryPromise({ try: () => question(resolver), catch: codeOf }).pipe(
        Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.fail("ETIMEOUT") }),
        Effect.onExit(() => Effect.sync(() => resolver.cancel()))
      )
    }).pipe(
      together.withPermits(1),
      Effect.timeoutOrElse({ duration: wholePatience, orElse: () => Effect.fail("ETIMEOUT") }),
      Effect.matchEffect({
        onSuccess: (records) => Effect.succeed({ records: records.slice(0, most).map(read), exists: true }),
        onFailure: (code) =>
          code === "ENODATA" || code === "ENOTFOUND"
            ? Effect.succeed({ records: [], exists: code === "ENODATA" })
            : Effect.fail(
                new DnsUnknown({
                  message: `The ${type} records of ${name} could not be asked for: ${reasons[code] ?? `the question failed (${code})`}`
                })
              )
      })
    )

  return {
    cname: (name) => ask("CNAME", name, (resolver) => resolver.resolveCname(name), plainName),
    addresses: (name) =>
      Effect.map(
        Effect.all(
          [
            ask("A", name, (resolver) => resolver.resolve4(name), same),
            ask("AAAA", name, (resolver) => resolver.resolve6(name), same)
          ],
          { concurrency: 2 }
        ),
        ([four, six]) => ({
          records: [...four.records, ...six.records],
          exists: four.exists || six.exists
        })
      ),
    txt: (name) =>
      ask(
        "TXT",
        name,
        (resolver) => resolver.resolveTxt(name),
        (parts) => parts.join("").slice(0, 1_000)
      ),
    caa: (name) => ask("CAA", name, (resolver) => resolver.resolveCaa(name), caaRecord)
  }
}

const same = (text: string) => text

/** Names are compared without regard to case, and the dot at the end says nothing (RFC 1034, section 3.1). */
export const plainName = (name: string): string => name.slice(0, 255).toLowerCase().replace(/\.$/, "")

const caaTags = ["issue", "issuewild", "iodef"] as const
/** The tag is a key of the record here, beside `critical`. */
const caaRecord = (record: Awaited<ReturnType<dns.Resolver["resolveCaa"]>>[number]): CaaRecord => {
  const known = caaTags.find((tag) => record[tag] !== undefined)
  const [tag, value] =
    known === undefined
      ? (Object.entries(record).find(([key]) => key !== "critical" && key !== "type") ?? ["", ""])
      : [known, record[known]]
  return {
    critical: record.critical !== 0,
    tag: tag.slice(0, 100).toLowerCase(),
    value: String(value).slice(0, 1_000)
  }
}

const isFailure = Schema.is(Schema.Struct({ code: Schema.String }))
const codeOf = (cause: unknown): string => (isFailure(cause) ? cause.code : "unknown")

/** Codes of `node:dns`, for people. */
const reasons: Readonly<Record<string, string>> = {
  ESERVFAIL: "its name server failed (SERVFAIL)",
  EREFUSED: "the name server refused the question",
  ETIMEOUT: "no name server answered in time",
  ECONNREFUSED: "no name server could be reached",
  EBADRESP: "the answer could not be read",
  EFORMERR: "the name server did not understand the question",
  ENOTIMP: "the name server does not know the question",
  EBADNAME: "it is not a name that can be asked for"
}
