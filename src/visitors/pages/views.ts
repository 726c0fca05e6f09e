/** What the page of `/access` shows. */
import type { AccessMode } from "#schemas/access-policy.ts"
import { form, html, page } from "#src/identity/pages/html.ts"
import type { Session } from "#src/identity/Sessions.ts"
import type { Destination, Way } from "../Visits.ts"

export const lost = page({
  title: "Nowhere to go",
  status: 400,
  body: html`<p role="alert">This address is not complete. Open the app again.</p>`
})

export const unknown = page({
  title: "No such app",
  status: 404,
  body: html`<p role="alert">No app answers under this name any more.</p>`
})

/** Whom it is open to, where that is not the one who asks. */
const openTo = (access: AccessMode, organization: string): string => {
  switch (access) {
    case "organization":
      return `It is open to members of the organization ${organization}.`
    case "invite_only":
      return "It is open to invited e-mail addresses. Ask whoever sent you here for an invitation."
    case "authenticated":
    case "public":
      return "Sign in again to see it."
  }
}

const otherAccount = (here: string) =>
  form("/account/sign-out", { next: here }, html``, "Use another account", true)

export const refused = ({ access, host, organization }: Destination, session: Session, here: string) =>
  page({
    title: "You may not see this",
    status: 403,
    body: html`<p role="alert">You are signed in as <strong>${session.email}</strong>, who may not see <strong>${host}</strong>.</p>
<p>${openTo(access, organization)}</p>
${otherAccount(here)}`
  })

export const confirm = (
  { host, project, environment, organization }: Destination,
  { challenge, returnPath }: Way,
  session: Session,
  here: string,
  changed = false
) =>
  page({
    title: `Go on to ${host}`,
    ...(changed ? { status: 409, problem: "You are signed in as somebody else now." } : {}),
    body: html`<p>This is ${environment} of ${project}, an app of the organization <strong>${organization}</strong>. It is told who
you are: <strong>${session.email}</strong>.</p>
${form("/access", { host, state: challenge, return: returnPath, user: session.userId }, html``, "Go on")}
${otherAccount(here)}`
  })

/** Not a redirect: browsers hold every redirect that follows a form against the form's page (CSP3, `form-action`). */
export const goingOn = ({ host }: Destination, url: string) =>
  page({
    title: "Going on",
    onward: url,
    headers: { "referrer-policy": "no-referrer" },
    body: html`<p role="status">You are on your way to ${host}.</p>
<p>If nothing happens, <a href="${url}" rel="noreferrer">go there yourself</a>.</p>`
  })
