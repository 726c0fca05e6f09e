/**
 * The page after a decision, from which the browser goes on to the client. Not a redirect: Chromium holds every redirect
 * that follows a form against the form's page (CSP3, `form-action`), those of the client's own sites too.
 */
import { html, page } from "#src/identity/pages/html.ts"
import { destinationOf } from "./destination.ts"

/** `url` may hold a code. */
export const answered = (url: string) =>
  page({
    title: "Answered",
    popup: true,
    onward: url,
    // Its address is no longer ours: what led there is nobody's business.
    headers: { "referrer-policy": "no-referrer" },
    body: html`<p role="status">The answer goes to ${destinationOf(url)}. You may close this page when it has arrived.</p>
<p>If nothing happens, <a href="${url}" rel="noreferrer">go there yourself</a>.</p>`
  })
