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

const audiences: ReadonlyArray<Audience> = ["api", "mcp"]

/** The audience that a resource identifier stands for, under whichever of our names; null: none of ours. */
export const audienceOf = (issuer: string, resource: string): Audience | null => {
  const { port } = new URL(issuer)
  const origins = [issuer, ...loopbackNames.map((name) => originOf(issuer, `${name}:${port}`))]
  const named = resource.replace(/\/$/, "")
  const found = audiences.find((audience) => origins.some((origin) => resourceOf(origin, audience) === named))
  return found ?? null
}
