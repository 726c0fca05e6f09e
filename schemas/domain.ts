/**
 * `Domain`: a host name of the customer's own under which an environment is reached. Its name is the host name, in the
 * form that DNS has it.
 */
import * as Schema from "effect/Schema"
import { parse } from "tldts"
import { progress, warning } from "./condition.ts"
import { inputOf } from "./input.ts"
import { defineKind } from "./kind.ts"
import { section } from "./manifest-mapping.ts"
import { defaultEnvironment } from "./names.ts"

const longestName = 253
const longestLabel = 63

/**
 * Why a text cannot be the host name of a domain, with what to write instead; undefined: by its form it can. Names that
 * registries hand out names below (co.uk, github.io) belong to nobody who could add them.
 */
export const hostnameFault = (text: string): string | undefined => {
  if (/[^\x21-\x7e]/.test(text)) {
    const ascii = asciiOf(text)
    return `must be written in its ASCII form${ascii === undefined ? "" : `: ${ascii}`}`
  }
  if (text.startsWith("*")) return "must be one host name: there are no wildcards"
  if (/[/:@?#]/.test(text)) return "must be a host name alone, without a scheme, a port or a path"
  if (text.endsWith(".")) return "must not end in a dot"
  if (/[A-Z]/.test(text)) return `must be in lower case: ${text.toLowerCase().slice(0, longestName)}`
  if (text.includes("_")) return "must not contain an underscore, which host names do not have"
  if (text.length > longestName) return `must have at most ${longestName} characters`
  const labels = text.split(".")
  if (labels.some((label) => label.length > longestLabel))
    return `must have at most ${longestLabel} characters between two dots`
  if (labels.length < 2) return "must have at least two parts, such as example.com"
  if (!labels.every((label) => /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(label)))
    return "must consist of letters, digits and dashes between dots, with neither a dot nor a dash at the edges"
  const known = parse(text, { allowPrivateDomains: true })
  if (known.isIp === true || /^[0-9.]+$/.test(text)) return "must be a host name, not an address"
  if (!/^([a-z]{2,}|xn--[a-z0-9-]+)$/.test(labels.at(-1) ?? ""))
    return "must end in a top-level domain: letters, two or more"
  if (known.domain === null)
    return "is a public suffix, below which others have names; add a name of your own below it"
  return undefined
}

/** The form that DNS has (RFC 5890: A-labels), of a name that has one. */
const asciiOf = (text: string): string | undefined => {
  const url = `http://${text}`
  if (!URL.canParse(url)) return undefined
  const { hostname } = new URL(url)
  return hostnameFault(hostname) === undefined ? hostname : undefined
}

/** As far as a pattern can tell. */
const form = "^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\.)+([a-z]{2,63}|xn--[a-z0-9-]{0,58}[a-z0-9])$"

/** A host name as users give it. */
export const Hostname = Schema.String.check(
  Schema.makeFilter((text: string) => hostnameFault(text), {
    toJsonSchema: () => ({ pattern: form, maxLength: longestName })
  })
).annotate({
  identifier: "Hostname",
  description: "Lowercase DNS name of two parts or more; internationalized ones in their ASCII form (xn--)",
  examples: ["www.example.com"]
})

/** Two years: what lists of such hosts in browsers ask for is one. */
const longestHsts = 63_072_000

export const DomainSpec = Schema.Struct({
  redirectTo: Schema.optionalKey(Hostname).annotateKey({
    description: "Another domain of the environment, to which requests are sent on (such as www to the apex)"
  }),
  hstsSeconds: Schema.optionalKey(
    Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: longestHsts }))
  ).annotateKey({
    description: "For how long browsers keep to https (Strict-Transport-Security); default 0, not at all"
  })
}).annotate({ identifier: "DomainSpec" })
export type DomainSpec = typeof DomainSpec.Type
/** What users may give of a domain, besides its host name. */
export const DomainInput = inputOf(DomainSpec)

export const DomainState = Schema.Literals(["pending_dns", "pending_ssl", "active"])
export type DomainState = typeof DomainState.Type

export const DomainStatus = Schema.Struct({
  state: DomainState,
  /** What is wrong or still to be done, for people. */
  verificationErrors: Schema.NullOr(Schema.String),
  /** When the certificate that is served ends. */
  certificateExpiresAt: Schema.NullOr(Schema.String)
}).annotate({ identifier: "DomainStatus" })
export type DomainStatus = typeof DomainStatus.Type

/** A claim that DNS has not proved by then lapses. */
export const claimDays = 7

export const Domain = defineKind({
  name: "Domain",
  summary: "A host name of your own under which an environment is reached, with a certificate.",
  scope: "environment",
  spec: DomainSpec,
  status: DomainStatus,
  fields: Object.keys(DomainSpec.fields),
  immutable: [],
  // A manifest has host names alone.
  internal: ["redirectTo", "hstsSeconds"],
  generated: [],
  references: [{ path: "/redirectTo", kind: "Domain", by: "name", required: true, acyclic: true }],
  singleton: false,
  deleteRole: "admin",
  reasons: {
    PendingDns: progress("DNS does not lead the host name to the environment yet"),
    PendingCertificate: progress("Its certificate is on its way"),
    CertificateFailed: warning("The certificate was refused for now; it is tried again"),
    CertificateRefused: warning("The certificate was refused for good; mend the cause and check the domain"),
    CertificateRenewalFailed: warning("The certificate in use is good; getting the next one fails"),
    DnsMoved: warning("DNS leads the host name elsewhere; what still comes here is served"),
    DnsUnknown: warning("No name server answers for the host name; it is served as before"),
    EdgeUnreachable: warning("No edge is at work that could serve it"),
    NotServed: warning("An edge does not serve it as it should"),
    NameRefused: warning("The host name cannot be a custom domain here"),
    ClaimLapsed: warning(`DNS did not lead it here within ${claimDays} days; the name is free for others`)
  },
  manifest: section({
    section: "domains",
    fields: {
      domains: Schema.optionalKey(
        Schema.Array(Hostname)
          .check(Schema.isMaxLength(1_000))
          .annotate({ description: "Host names of production; those of other environments are unmanaged" })
      )
    },
    entries: ({ domains }) =>
      domains?.map((name, index) => ({
        path: ["domains", index],
        environment: defaultEnvironment,
        name,
        spec: {}
      })),
    manages: ({ environment }) => environment === defaultEnvironment,
    assemble: (resources) => (resources.length === 0 ? {} : { domains: resources.map(({ name }) => name) })
  }),
  // A claim may take days, and lapses by itself.
  deadlineSeconds: (claimDays + 1) * 86_400
})
