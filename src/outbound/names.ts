/**
 * The addresses of a host name.
 *
 * Names are asked for over sockets and not through the operating system's function, of which only a handful can run at
 * a time in a process: a name server that does not answer would hold up everybody else's requests. What no name
 * server knows may be in the machine's own file of hosts, and is then looked up there, two at a time. Where no name
 * server answers that file is read here, because the operating system would wait for them once more.
 */
import { promises as dns } from "node:dns"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"

/** Nobody knows the name, or nobody answered. */
export class NameUnknown extends Schema.TaggedError<NameUnknown>()("NameUnknown", {
  message: Schema.String
}) {}

const Failure = Schema.Struct({ code: Schema.String })
const isFailure = Schema.is(Failure)
const codeOf = (cause: unknown) => (isFailure(cause) ? cause.code : "unknown")

const localLookups = Semaphore.makeUnsafe(2)

const ask = (name: string) =>
  Effect.suspend(() => {
    const resolver = new dns.Resolver({ timeout: 2000, tries: 2 })
    const query = (addresses: () => Promise<Array<string>>) =>
      Effect.result(Effect.tryPromise({ try: addresses, catch: codeOf }))
    return Effect.all([query(() => resolver.resolve4(name)), query(() => resolver.resolve6(name))], {
      concurrency: 2
    }).pipe(Effect.onInterrupt(() => Effect.sync(() => resolver.cancel())))
  })

const inHostsFile = (name: string) =>
  localLookups.withPermits(1)(
    Effect.tryPromise({
      try: async () => (await dns.lookup(name, { all: true })).map(({ address }) => address),
      catch: (cause) => new NameUnknown({ message: `The name ${name} has no address (${codeOf(cause)})` })
    })
  )

/** See hosts(5). */
const writtenInHostsFile = (name: string) =>
  Effect.promise(async () => {
    const text = await fs.readFile("/etc/hosts", "utf8").catch(() => "")
    return text.split("\n").flatMap((line) => {
      const [address = "", ...names] = line.replace(/#.*/, "").trim().split(/\s+/)
      return net.isIP(address) !== 0 && names.some((one) => one.toLowerCase() === name) ? [address] : []
    })
  })

const absent = new Set(["ENOTFOUND", "ENODATA"])

const resolve = Effect.fnUntraced(function* (name: string) {
  const answers = yield* ask(name)
  const addresses = answers.flatMap((answer) => (answer._tag === "Success" ? answer.success : []))
  if (addresses.length > 0) return addresses
  const codes = answers.flatMap((answer) => (answer._tag === "Failure" ? [answer.failure] : []))
  if (codes.every((code) => absent.has(code) || code === "ECONNREFUSED")) return yield* inHostsFile(name)
  const written = yield* writtenInHostsFile(name.toLowerCase())
  if (written.length > 0) return written
  return yield* new NameUnknown({ message: `The name ${name} has no address (${codes.join(", ")})` })
})

/** This machine, whatever a name server says of it (RFC 6761, section 6.3). */
export const ownAddresses = (name: string): ReadonlyArray<string> | undefined =>
  name === "localhost" || name.endsWith(".localhost") ? ["127.0.0.1", "::1"] : undefined

/** A reference, so that tests can have names of their own. */
export const Names = Context.Reference<(name: string) => Effect.Effect<ReadonlyArray<string>, NameUnknown>>(
  "svc/outbound/Names",
  { defaultValue: () => resolve }
)
