/** Whether a request comes from our own pages, as browsers tell it and no page can forge. */
import type * as HttpServerRequest from "effect/http/HttpServerRequest"

/**
 * For requests that a browser could be made to send with its cookies. `Sec-Fetch-Site` says it where the browser
 * knows it, `Origin` in older ones. Neither: not from our pages.
 */
export const sameOrigin = ({ headers }: HttpServerRequest.HttpServerRequest): boolean => {
  const site = headers["sec-fetch-site"]
  if (site !== undefined) return site === "same-origin"
  const origin = headers["origin"]
  const host = headers["host"]
  return origin !== undefined && host !== undefined && URL.canParse(origin) && new URL(origin).host === host
}

/** Whether a browser says that another site's page sent it. Programs that are no browsers say nothing. */
export const otherOrigin = (request: HttpServerRequest.HttpServerRequest): boolean => {
  const { headers } = request
  const told = headers["sec-fetch-site"] !== undefined || headers["origin"] !== undefined
  return told && !sameOrigin(request)
}
