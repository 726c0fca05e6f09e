/** Cookies of a protected host. Their names make browsers keep them to that host and to TLS (RFC 6265bis, `__Host-`). */
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { platformCookies } from "#src/edge/haproxy-config.ts"

export const {
  /** Lets through, for minutes. HAProxy checks it and cuts it out. */
  ticket: ticketCookie,
  /** Renews tickets, for a day. */
  visitor: visitCookie,
  /** Ties the way through the platform to the browser that set out on it. */
  state: stateCookie
} = platformCookies

/** The value of a cookie that is there once. One that is there twice says nothing. */
export const cookieOf = (cookies: string | undefined, name: string): Option.Option<string> => {
  const values = partsOf(cookies).flatMap(([one, value]) => (one === name ? [value] : []))
  const [value] = values
  return values.length === 1 && value !== undefined ? Option.some(value) : Option.none()
}

/** The `Cookie` field with a ticket in place of the one that there may have been. */
export const withTicket = (cookies: string | undefined, ticket: Redacted.Redacted): string =>
  [
    ...partsOf(cookies).flatMap(([name, value]) => (name === ticketCookie ? [] : [`${name}=${value}`])),
    `${ticketCookie}=${Redacted.value(ticket)}`
  ].join("; ")

const partsOf = (cookies: string | undefined): ReadonlyArray<readonly [name: string, value: string]> =>
  (cookies ?? "").split(";").flatMap((part) => {
    const at = part.indexOf("=")
    return at === -1 ? [] : [[part.slice(0, at).trim(), part.slice(at + 1).trim()] as const]
  })

/** A `Set-Cookie` field. Lax: whoever follows a link to the host is let in. */
export const setCookie = (name: string, value: Redacted.Redacted | "", seconds: number): string =>
  `${name}=${value === "" ? "" : Redacted.value(value)}; Path=/; Max-Age=${seconds}; Secure; HttpOnly; SameSite=Lax`
