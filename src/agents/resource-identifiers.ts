/** What tokens are for, as clients name it (RFC 8707), and the metadata that says so (RFC 9728). */
import type { Audience } from "#src/access/CurrentAudience.ts"

const loopbackNames = ["127.0.0.1", "localhost", "[::1]"]

/**
 * The origin under which a client reached us. Clients hold what metadata says against the address that they were given, and
 * a machine has several names for itself: one of loopback at our own port is repeated, and nothing else that a request
 * may call us.
 */
export const originOf = (issuer: string, host: string | undefined): string => {
  const { port, hostname } = new URL(issuer)
  const asked = host?.toLowerCase()
  return loopbackNames.includes(hostname) && loopbackNames.some((name) => asked === `${name}:${port}`)
    ? `http://${asked}`
    : issuer
}

export const resourceOf = (origin: string, audience: Audience): string =>
  audience === "mcp" ? `${origin}/mcp` : origin

/** What is wrong with the resources that a client of this audience names; undefined: nothing. */
export const resourceFault = (
  issuer: string,
  audience: Audience,
  named: ReadonlyArray<string>
): string | undefined => {
  const { port } = new URL(issuer)
  const ours = [issuer, ...loopbackNames.map((name) => originOf(issuer, `${name}:${port}`))].map((origin) =>
    resourceOf(origin, audience)
  )
  return named.every((one) => ours.includes(one.replace(/\/$/, "")))
    ? undefined
    : `This program may ask for ${resourceOf(issuer, audience)} only`
}
