/** What the pages show. No view knows how its facts came about. */
import type { OidcProvider } from "#src/config.ts"
import { shortestPassword } from "../passwords.ts"
import type { ListedSession, Session } from "../Sessions.ts"
import { field, form, type Html, html, page } from "./html.ts"

const newPassword = (faulty: boolean, first: boolean) =>
  field({
    name: "password",
    label: "New password",
    type: "password",
    autocomplete: "new-password",
    hint: `At least ${shortestPassword} characters. A few words that only you would put together are good.`,
    shortest: shortestPassword,
    faulty,
    first
  })

const to = (path: string, next: string) =>
  next === "/account" ? path : `${path}?next=${encodeURIComponent(next)}`

/** A program that is a page may have opened the window in which its person signs in. */
const forAgent = (next: string) => next.startsWith("/agent/authorize?")

export interface Tried {
  readonly status: number
  readonly problem: string
  readonly email: string
  readonly headers?: Readonly<Record<string, string>>
}

export const signIn = (
  providers: ReadonlyArray<Pick<OidcProvider, "id" | "name">>,
  next: string,
  tried?: Tried
) =>
  page({
    title: "Sign in",
    ...(tried === undefined ? {} : tried),
    popup: forAgent(next),
    body: html`${forAgent(next) && html`<p>Sign in to see what a program asks of you, and to answer it.</p>`}
${form(
  "/sign-in",
  { next },
  html`${field({
    name: "email",
    label: "E-mail address",
    type: "email",
    autocomplete: "username",
    value: tried?.email ?? "",
    faulty: tried !== undefined,
    first: tried === undefined
  })}${field({
    name: "password",
    label: "Password",
    type: "password",
    autocomplete: "current-password",
    faulty: tried !== undefined,
    first: tried !== undefined
  })}`,
  "Sign in"
)}
<p><a href="${to("/reset-password", next)}">I forgot my password</a></p>
<h2>Without a password</h2>
<p><a href="${to("/sign-in/by-mail", next)}">Send me a link by mail</a></p>
${
  providers.length > 0 &&
  html`${providers.map(
    ({ id, name }) => html`<p><a href="${to(`/v1/auth/oidc/${id}`, next)}">Sign in with ${name}</a></p>`
  )}`
}
<h2>New here?</h2>
<p><a href="${to("/sign-up", next)}">Create an account</a></p>`
  })

export const byMail = (next: string, tried?: Tried) =>
  page({
    title: "Sign in by mail",
    ...(tried === undefined ? {} : tried),
    popup: forAgent(next),
    body: html`<p>We send you a link that signs you in, once.</p>
${form("/sign-in/by-mail", { next }, emailField(tried), "Send the link")}
<p><a href="${to("/sign-in", next)}">Sign in with a password</a></p>`
  })

const emailField = (tried: Tried | undefined, first = true) =>
  field({
    name: "email",
    label: "E-mail address",
    type: "email",
    autocomplete: "email",
    value: tried?.email ?? "",
    faulty: tried !== undefined,
    first
  })

export const signUp = (invitedOnly: boolean, next: string, tried?: Tried & { readonly name: string }) =>
  page({
    title: "Create an account",
    ...(tried === undefined ? {} : tried),
    popup: forAgent(next),
    body: html`<p>We send you a link, to see that the address is yours. After that you may choose a password.</p>
${invitedOnly && html`<p>Only addresses that were invited can have an account here.</p>`}
${form(
  "/sign-up",
  { next },
  html`${field({
    name: "name",
    label: "Your name",
    type: "text",
    autocomplete: "name",
    value: tried?.name ?? "",
    first: true
  })}${emailField(tried, false)}`,
  "Send the link"
)}
<p>You have an account? <a href="${to("/sign-in", next)}">Sign in</a></p>`
  })

export const requestReset = (next: string, tried?: Tried) =>
  page({
    title: "Choose a new password",
    ...(tried === undefined ? {} : tried),
    popup: forAgent(next),
    body: html`<p>We send a link to the address of your account.</p>
${form("/reset-password", { next }, emailField(tried), "Send the link")}
<p><a href="${to("/sign-in", next)}">Back to sign in</a></p>`
  })

export const checkMail = () =>
  page({
    title: "Look at your mail",
    body: html`<p>If the address can receive it, a mail with a link is on its way. The link works for a short time, and once.</p>
<p>Nothing there after some minutes? Look among unwanted mail, or <a href="/sign-in">begin again</a>.</p>`
  })

export const confirmLink = (token: string, email: string) =>
  page({
    title: "Sign in",
    body: html`<p>You are about to sign in as <strong>${email}</strong>.</p>
${form("/sign-in/link", { token }, html``, "Sign in")}`
  })

export const resetPassword = (token: string, problem?: string) =>
  page({
    title: "Choose a new password",
    ...(problem === undefined ? {} : { problem, status: 422 }),
    body: html`<p>It signs you in here and out everywhere else.</p>
${form("/reset-password/new", { token }, newPassword(problem !== undefined, true), "Save the password")}`
  })

export const choosePassword = (
  session: Session,
  next: string,
  tried?: { readonly problem: string; readonly status: number }
) =>
  page({
    title: session.hasPassword ? "Change the password" : "Choose a password",
    ...(tried === undefined ? {} : tried),
    body: html`<p>${
      session.hasPassword
        ? "It signs you out everywhere else."
        : "So that you can sign in without waiting for mail. You may leave it for later."
    }</p>
${form(
  "/account/password",
  { next },
  html`<input type="hidden" name="username" autocomplete="username" value="${session.email}">
${
  session.hasPassword &&
  field({
    name: "current",
    label: "Current password",
    type: "password",
    autocomplete: "current-password",
    first: true
  })
}${newPassword(tried !== undefined, !session.hasPassword)}`,
  "Save the password"
)}
<p><a href="${next}">${session.hasPassword ? "Back" : "Not now"}</a></p>`
  })

export const proveAgain = (session: Session, next: string, tried?: Omit<Tried, "email">) =>
  page({
    title: "Confirm that it is you",
    ...(tried === undefined ? {} : tried),
    body: session.hasPassword
      ? html`<p>You are signed in as <strong>${session.email}</strong>. What you are about to do asks for the password again.</p>
${form(
  "/account/prove",
  { next },
  field({
    name: "password",
    label: "Password",
    type: "password",
    autocomplete: "current-password",
    faulty: tried !== undefined,
    first: true
  }),
  "Go on"
)}`
      : html`<p>You are signed in as <strong>${session.email}</strong>, without a password. What you are about to do asks you to
<a href="${to("/sign-in/by-mail", next)}">sign in again</a>.</p>`
  })

export const timeOf = (time: Date): Html =>
  html`<time datetime="${time.toISOString()}">${time.toISOString().slice(0, 16).replace("T", " ")} UTC</time>`

export const account = (
  session: Session,
  organizations: ReadonlyArray<{ readonly slug: string; readonly name: string; readonly role: string }>,
  sessions: ReadonlyArray<ListedSession>,
  done: string | undefined
) =>
  page({
    title: "Your account",
    body: html`${done !== undefined && html`<p role="status">${done}</p>`}
<p>${session.name}, <strong>${session.email}</strong></p>
<p><a href="/account/password">${session.hasPassword ? "Change the password" : "Choose a password"}</a></p>
<h2>Organizations</h2>
<ul>${organizations.map(
      ({ name, slug, role }) => html`<li><a href="/app/${slug}">${name}</a> (${slug}): ${role}</li>`
    )}</ul>
<h2>Agents</h2>
<p><a href="/account/agents">Programs that act for you</a></p>
<h2>Where you are signed in</h2>
<ul>${sessions.map(
      (one) =>
        html`<li>${one.userAgent ?? "an unnamed program"}, ${one.address ?? "unknown address"}, last used
${timeOf(one.lastUsedAt)}${
  one.id === session.id
    ? html` (here)`
    : html`<form method="post" action="/account/sessions/end"><input type="hidden" name="id" value="${one.id}"><button
type="submit" class="plain" aria-label="Sign out ${one.userAgent ?? "an unnamed program"}, ${one.address ?? ""}">Sign out</button></form>`
}</li>`
    )}</ul>
${form("/account/sign-out", {}, html``, "Sign out")}
${form("/account/sign-out-everywhere", {}, html``, "Sign out everywhere", true)}`
  })

export const invitation = (
  token: string,
  found: { readonly organization: string; readonly email: string; readonly role: string },
  signedInAs: string | undefined,
  tried?: { readonly problem: string; readonly status: number }
) => {
  const here = `/invitation?token=${token}`
  return page({
    title: "Invitation",
    ...(tried === undefined ? {} : tried),
    body: html`<p>The organization <strong>${found.organization}</strong> invites <strong>${found.email}</strong> as ${found.role}.</p>
${
  signedInAs === undefined
    ? html`<p>Sign in with that address, or create an account for it, to accept.</p>
<p><a class="button" href="${to("/sign-in", here)}">Sign in</a> <a class="button" href="${to("/sign-up", here)}">Create an account</a></p>`
    : html`<p>You are signed in as <strong>${signedInAs}</strong>.</p>
${form("/invitation", { token }, html``, "Accept the invitation")}`
}`
  })
}

/** A page that only says something. */
export const notice = (title: string, message: string, status: number, headers = {}) =>
  page({
    title,
    status,
    headers,
    body: html`<p role="${status < 400 ? "status" : "alert"}">${message}</p>
<p><a href="/sign-in">Go to sign in</a></p>`
  })
