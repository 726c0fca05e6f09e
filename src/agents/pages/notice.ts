/** Pages that say why a request of a program comes to nothing. */
import { html, page } from "#src/identity/pages/html.ts"
import { destinationOf } from "./destination.ts"

export const notice = (title: string, message: string, status: number, headers = {}) =>
  page({ title, status, headers, body: html`<p role="alert">${message}</p>` })

export const over = notice(
  "This request is over",
  "It was answered already, has waited for more than ten minutes, or never was. Begin again in the program that asked.",
  410
)

/**
 * A request that is wrong. `redirect` tells the program so, if it may be told. A person has to follow it: anybody can
 * register a program, and a link to us must not lead elsewhere by itself (RFC 9700, section 4.11.2).
 */
export const refusal = (message: string, redirect: string | null) =>
  page({
    title: "This request cannot be answered",
    status: 400,
    popup: true,
    body: html`<p role="alert">${message.replace(/\.?$/, ".")}</p>
${redirect !== null && html`<p><a href="${redirect}" rel="noreferrer">Tell ${destinationOf(redirect)}</a></p>`}`
  })
