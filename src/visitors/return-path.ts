/** Where a visitor goes on to after signing in: a path of the host, which can lead nowhere else. */

/** Characters, as it stands in a query. It is put into an address that is put into another one. */
const longest = 400

/** The way back itself is nothing to come back to. */
const own = "/.svc/"

/**
 * `/` in place of whatever is no path of the host: another host (`//`, and backslashes, which browsers read as slashes), a
 * scheme, control characters, and what is too long to be carried along.
 */
export const returnPath = (path: string | null | undefined): string =>
  path !== null &&
  path !== undefined &&
  /^\/(?![/\\])[\x21-\x5b\x5d-\x7e]*$/.test(path) &&
  new URLSearchParams({ return: path }).toString().length <= longest &&
  !path.startsWith(own) &&
  // The words of the URL standard, as browsers read it.
  URL.canParse(path, base) &&
  new URL(path, base).host === host
    ? path
    : "/"

const host = "host.invalid"
const base = `https://${host}/`
