/** Why there is no new certificate, and whether trying again may help. */

/** What happened, in the words of whoever refused, and its type. */
export interface CertificateError {
  readonly message: string
  /**
   * Of an answer of an ACME server: the last word of its type (RFC 8555, section 6.7), such as `rateLimited`, `caa` or
   * `dns`. Of our own: `unreachable` (no answer came), `answer` (one that makes no sense), `settings`, `internal`.
   */
  readonly type: string
}

export const certificateErrorOf = (message: string, type: string | null): CertificateError => ({
  message,
  type: type ?? "internal"
})

/** Refusals of the name itself: nothing changes until somebody changes something and asks again. */
const finalTypes: ReadonlySet<string> = new Set([
  "caa",
  "rejectedIdentifier",
  "unsupportedIdentifier",
  "policy"
])

export const isFinal = ({ type }: CertificateError): boolean => finalTypes.has(type)
