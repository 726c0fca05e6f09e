/**
 * Pages below a path of a proxy's own. What the proxy passes on lacks that path, and what the browser is told has to have
 * it: links, forms, redirects and paths of cookies.
 */
import * as Cookies from "effect/http/Cookies"
import * as HttpBody from "effect/http/HttpBody"
import * as HttpServerResponse from "effect/http/HttpServerResponse"

/** The path of the control plane's public address, without a slash at the end; mostly none. */
export const pathPrefix = (publicUrl: string): string => new URL(publicUrl).pathname.replace(/\/$/, "")

/** Attributes of our own templates: in what others wrote, quotation marks are escaped. */
const ownPaths = /\b(href|action)="(?=\/)/g

export const belowPath =
  (prefix: string) =>
  (response: HttpServerResponse.HttpServerResponse): HttpServerResponse.HttpServerResponse => {
    if (prefix === "") return response
    const { body, headers, cookies } = response
    const location = headers["location"]
    const moved =
      location?.startsWith("/") === true
        ? HttpServerResponse.setHeader(response, "location", prefix + location)
        : response
    const kept = HttpServerResponse.updateCookies(moved, () =>
      Cookies.fromIterable(
        Object.values(cookies.cookies).map((cookie) => {
          const { path = "/" } = cookie.options ?? {}
          return path === "/"
            ? cookie
            : Cookies.makeCookieUnsafe(cookie.name, cookie.value, { ...cookie.options, path: prefix + path })
        })
      )
    )
    if (body._tag !== "Uint8Array" || !body.contentType.startsWith("text/html")) return kept
    const text = new TextDecoder().decode(body.body).replaceAll(ownPaths, `$1="${prefix}`)
    return HttpServerResponse.setBody(kept, HttpBody.text(text, body.contentType))
  }
