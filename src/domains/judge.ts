/**
 * What was seen of a domain, and what follows: its state, what is to be done next, and what people are told. Nothing is
 * taken back for an answer that did not come: a name server or an edge that is away leaves a domain as it was.
 */
import type { Difference } from "#schemas/difference.ts"
import type { DomainState, DomainStatus } from "#schemas/domain.ts"
import type { Certificate } from "#src/edge/certificates/Certificates.ts"
import type { Observation } from "#src/engine/Reconciler.ts"
import { type Claim, challengeName } from "./Claims.ts"
import type { Direction } from "./dns/points-here.ts"
import type { Served } from "./Probe.ts"

export interface Seen {
  readonly hostname: string
  readonly claim: Claim
  /** `Unknown`: no name server answered. */
  readonly dns: Direction | { readonly _tag: "Unknown"; readonly message: string }
  /** Whether the TXT record that the claim asks for is there, where it has to be. */
  readonly shown: boolean
  /** What is different about the host name as the edge has it; undefined: nothing. */
  readonly host: Difference | undefined
  readonly certificate: Certificate | undefined
  readonly served: Served
  /** As it was when it was last looked at. */
  readonly before: DomainState | undefined
}

type Present = Extract<Observation<DomainStatus>, { readonly _tag: "Present" }>
type Verdict = Omit<Present, "_tag" | "pollAfter">

/** How long a proof that was noted is as good as one of now, in seconds. */
const provedFor = 86_400

export const judge = (seen: Seen): Verdict => {
  const { hostname, claim, dns, shown, certificate, served, before } = seen
  const proved = claim.provedAge !== undefined
  const here = dns._tag === "Here" && (proved || shown)
  const trouble =
    dns._tag !== "Here"
      ? dns.message
      : `${
          claim.contested
            ? "Another organization has used this name before"
            : "Its addresses are the platform's, which others share"
        }. To show that it is yours, add the TXT record ${challengeName(hostname)} with the value ${claim.challenge}`

  if (!proved) {
    return here
      ? { ...underway(seen, "pending_ssl"), differences: [leads, ...toDo(seen)] }
      : { ...underway(seen, "pending_dns"), ...because("PendingDns", trouble) }
  }
  const differences = toDo(seen)
  // An edge that does not answer says nothing of what it serves.
  const unheard =
    served._tag === "NoEdge" ? "No edge is at work" : served._tag === "NoAnswer" ? served.message : undefined
  const isServed = served._tag === "Everywhere" || (unheard !== undefined && before === "active")
  if (certificate?.state === "issued" && isServed) {
    const note =
      certificate.error !== undefined
        ? {
            reason: "CertificateRenewalFailed",
            message: `The certificate in use holds until ${certificate.expiresAt?.toISOString() ?? "its end"}; getting the next one fails: ${certificate.error.message}`
          }
        : unheard !== undefined
          ? { reason: "EdgeUnreachable", message: unheard }
          : here
            ? undefined
            : dns._tag === "Unknown"
              ? { reason: "DnsUnknown", message: dns.message }
              : { reason: "DnsMoved", message: `${trouble}. What still comes here is served` }
    return {
      status: statusOf(seen, "active", note?.message ?? null),
      ready: true,
      differences,
      ...(note === undefined ? {} : { note }),
      maintenance: here && (claim.provedAge ?? 0) > provedFor ? [leads] : []
    }
  }
  // Nobody can come here, and no certificate is to be had.
  if (dns._tag === "Elsewhere" && certificate?.state !== "issued")
    return { ...underway(seen, "pending_dns"), differences, ...because("PendingDns", trouble) }
  const waitsFor =
    certificate?.state === "issued"
      ? served._tag === "Not"
        ? because("NotServed", served.message)
        : because("EdgeUnreachable", unheard ?? "No edge is at work")
      : certificate?.error === undefined
        ? because("PendingCertificate", "DNS is right; the certificate is being ordered")
        : because(
            "CertificateFailed",
            `There is no certificate yet, and it is tried again: ${certificate.error.message}`
          )
  return { ...underway(seen, "pending_ssl"), differences, ...waitsFor }

  function because(reason: string, message: string) {
    const unknown = dns._tag === "Unknown" && message !== dns.message ? `. ${dns.message}` : ""
    const told = `${message}${unknown}`
    // That work goes its normal way is no error.
    const isError = reason !== "PendingCertificate" || unknown !== ""
    return {
      reason,
      message: told,
      status: statusOf(seen, reason === "PendingDns" ? "pending_dns" : "pending_ssl", isError ? told : null)
    }
  }
}

const leads: Difference = { field: "/dns", message: "that DNS leads here is not noted yet" }

const toDo = ({ host, certificate }: Seen): ReadonlyArray<Difference> => [
  ...(host === undefined ? [] : [host]),
  ...(certificate === undefined ? [{ field: "/certificate", message: "no certificate is asked for" }] : [])
]

const underway = (seen: Seen, state: DomainState) => ({
  status: statusOf(seen, state, null),
  ready: false,
  differences: []
})

const statusOf = (
  { certificate }: Seen,
  state: DomainState,
  verificationErrors: string | null
): DomainStatus => ({
  state,
  verificationErrors,
  certificateExpiresAt: certificate?.expiresAt?.toISOString() ?? null
})

/**
 * Seconds until the next look at what waits for somebody or something else: a tenth of how long it has waited, so that it
 * is soon seen and rarely asked for. What waits for the edge alone is seen within seconds: `reason` says so. `random` is
 * between 0 and 1.
 */
export const nextLook = ({ age, provedAge }: Claim, reason: string | undefined, random: number): number => {
  const longest = reason === "NotServed" || reason === "EdgeUnreachable" ? 15 : 600
  return Math.min(longest, Math.max(2, (provedAge ?? age) / 10)) * (0.75 + random / 2)
}
