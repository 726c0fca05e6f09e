/** Where the answer to a request goes, in words. */

const loopback = /^(localhost|127(\.\d+){3}|\[::1\])$/

/** Whether a program on the machine of the browser answers there. */
export const isLoopback = (url: string): boolean => {
  const { protocol, hostname } = new URL(url)
  return protocol === "http:" && loopback.test(hostname)
}

/** Completes "The answer goes to ...". `redirectUri` has been accepted already: it is an absolute URL. */
export const destinationOf = (redirectUri: string): string => {
  const { protocol, host } = new URL(redirectUri)
  if (protocol !== "http:" && protocol !== "https:") {
    return `the program on this device that opens ${protocol} addresses`
  }
  return isLoopback(redirectUri) ? `a program on this computer (${host})` : host
}
