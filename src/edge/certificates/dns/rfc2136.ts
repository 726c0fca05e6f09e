/**
 * Dynamic updates of a zone (RFC 2136), signed with a shared key (TSIG, RFC 8945), by Debian's `nsupdate`. What it is to
 * do, and the key, go through its standard input: nobody sees them in a list of processes.
 */
import { execFile } from "node:child_process"
import * as net from "node:net"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { externalCall } from "#src/engine/external-call.ts"
import { helperEnvironment } from "#src/infra/host/helper-environment.ts"
import { type DnsProvider, DnsProviderError, type TextRecord } from "./DnsProvider.ts"

const dnsName = /^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*$/
const named = Schema.String.check(Schema.isPattern(dnsName, { expected: "a name without a dot at its end" }))

/** `SVC_ACME_DNS`. */
export const Rfc2136 = Schema.Struct({
  provider: Schema.Literal("rfc2136"),
  /** The primary server of the zone: an IP address, or a name. */
  server: Schema.String.check(
    Schema.makeFilter((text: string) => net.isIP(text) !== 0 || dnsName.test(text), {
      expected: "an IP address or a host name"
    })
  ),
  port: Schema.optional(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 65_535 }))),
  zone: named,
  keyName: named,
  algorithm: Schema.optional(Schema.Literals(["hmac-sha256", "hmac-sha384", "hmac-sha512"])),
  secret: Schema.String.check(Schema.isPattern(/^[A-Za-z0-9+/]+={0,2}$/, { expected: "base64" })).pipe(
    Schema.RedactedFromValue
  ),
  /** Until the other servers of the zone have what the primary has. */
  propagationSeconds: Schema.optional(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 600 })))
})
export type Rfc2136 = typeof Rfc2136.Type

const patienceMs = 20_000
/** Of the records, in seconds: they are there for a minute or so. */
const ttl = 30

export const rfc2136 = (settings: Rfc2136): DnsProvider => {
  const { server, port = 53, keyName, algorithm = "hmac-sha256", secret, propagationSeconds = 0 } = settings
  const zone = settings.zone.toLowerCase()

  const update = ({ name, value }: TextRecord, change: "add" | "delete") => {
    // What stands in a line here was checked, or made by us: a line break would be a command of its own.
    if (!dnsName.test(name) || !/^[\w-]+$/.test(value)) {
      return Effect.fail(new DnsProviderError({ message: `${name} cannot be written to the zone ${zone}` }))
    }
    const record = change === "add" ? `${name}. ${ttl} IN TXT "${value}"` : `${name}. IN TXT "${value}"`
    const script = [
      `server ${server} ${port}`,
      `zone ${zone}.`,
      `key ${algorithm}:${keyName} ${Redacted.value(secret)}`,
      `update ${change} ${record}`,
      "send",
      ""
    ].join("\n")
    return nsupdate(script).pipe(
      Effect.mapError(
        (said) =>
          new DnsProviderError({
            message: `The name server ${server} did not take the record of ${name}: ${said.replaceAll(Redacted.value(secret), "...")}`
          })
      )
    )
  }

  return {
    covers: (name) => name === zone || name.endsWith(`.${zone}`),
    add: (record) =>
      update(record, "add").pipe(
        externalCall("dns.add", "write"),
        Effect.andThen(Effect.sleep(propagationSeconds * 1000))
      ),
    remove: (record) => externalCall("dns.remove", "write")(update(record, "delete"))
  }
}

/** Over TCP (`-v`), so that no lost datagram is waited for; fails with what the program said. */
const nsupdate = (script: string): Effect.Effect<void, string> =>
  Effect.callback<void, string>((resume) => {
    const child = execFile(
      "nsupdate",
      ["-v", "-t", String(patienceMs / 2000)],
      { env: helperEnvironment(), timeout: patienceMs, killSignal: "SIGKILL", maxBuffer: 64 * 1024 },
      (error, _out, stderr) => {
        if (error === null) return resume(Effect.void)
        if (error.code === "ENOENT") {
          return resume(Effect.fail("the program nsupdate is missing (Debian: bind9-dnsutils)"))
        }
        const said = stderr.replaceAll(/\s+/g, " ").trim()
        resume(
          Effect.fail(error.killed ? "it did not answer in time" : said === "" ? "no reason is known" : said)
        )
      }
    )
    // It may have ended before it has read everything; what became of it is told above.
    child.stdin?.on("error", () => {})
    child.stdin?.end(script)
    return Effect.sync(() => child.kill("SIGKILL"))
  })
