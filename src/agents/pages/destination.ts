/** Where the answer to a request goes: in words, and as the source that the page's policy must allow. */

export interface Destination {
  /** Completes "The answer goes to ...". */
  readonly words: string
  /** An expression of `form-action` (CSP3, section 2.3.1). */
  readonly source: string
}

const loopback = /^(localhost|127(\.\d+){3}|\[::1\])$/

/** Whether a program on the machine of the browser answers there. */
export const isLoopback = (url: string): boolean => {
  const { protocol, hostname } = new URL(url)
  return protocol === "http:" && loopback.test(hostname)
}

/** `redirectUri` has been accepted already: it is an absolute URL. */
export const destinationOf = (redirectUri: string): Destination => {
  const { protocol, host, origin } = new URL(redirectUri)
  if (protocol !== "http:" && protocol !== "https:") {
    return { words: `the program on this device that opens ${protocol} addresses`, source: protocol }
  }
  return {
    words: isLoopback(redirectUri) ? `a program on this computer (${host})` : host,
    // A policy cannot name IPv6 addresses, and a host may hold a semicolon or comma, which would end the directive.
    source: /^https?:\/\/[a-z0-9.-]+(:\d+)?$/.test(origin) ? origin : protocol
  }
}
