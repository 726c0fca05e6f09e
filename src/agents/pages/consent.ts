/**
 * The page on which somebody lets an agent in, or does not. Nothing is chosen beforehand: approving takes a choice and then
 * a press of the button, so that no single click lured onto the page (double-clickjacking) can do it.
 */
import type { Risk } from "#src/api/definition/operation.ts"
import { type Html, html, page } from "#src/identity/pages/html.ts"
import type { GrantRole } from "../scopes.ts"
import { destinationOf, isLoopback } from "./destination.ts"
import { withArticle } from "./words.ts"

export interface AskedOperation {
  readonly id: string
  /** What it does, as a sentence. */
  readonly summary: string
  readonly risk: Risk
}

export interface Consent {
  /** Of the pending request. */
  readonly id: string
  readonly client: {
    /** An address, where the program describes itself; else of no use to people. */
    readonly id: string
    readonly name: string
    /** The id is that of a program of ours, which any program on the person's machine can give. */
    readonly firstParty: boolean
  }
  readonly redirectUri: string
  readonly role: GrantRole
  readonly operations: ReadonlyArray<AskedOperation>
  readonly person: { readonly userId: string; readonly email: string }
  /** Those in which the person's role suffices. */
  readonly organizations: ReadonlyArray<{ readonly id: string; readonly slug: string; readonly name: string }>
}

/** What was sent and could not be taken. */
export interface Refused {
  readonly status: number
  readonly problem: string
  readonly organization: string
  readonly ticked: ReadonlySet<string>
}

/** The riskier first. What is dangerous comes before them, to be ticked one by one. */
const groups: ReadonlyArray<{ readonly risk: Risk; readonly title: string }> = [
  { risk: "destructive", title: "Delete and take away" },
  { risk: "write", title: "Create and change" },
  { risk: "read", title: "Read" }
]

export const here = (id: string) => `/agent/authorize?pending=${encodeURIComponent(id)}`

export const consent = (asked: Consent, refused?: Refused) => {
  const possible = asked.organizations.length > 0
  const local = isLoopback(asked.redirectUri)
  return page({
    title: "Authorize a program",
    wide: true,
    popup: true,
    ...(refused === undefined ? {} : { status: refused.status, problem: refused.problem }),
    body: html`${who(asked)}
<p>The answer goes to <strong>${destinationOf(asked.redirectUri)}</strong>. Go on only if you have just asked for this yourself.${
      local &&
      html` Whoever has the address where your browser arrives then may act for you: send it to nobody, and paste it nowhere but
into your own command line.`
    }</p>
<form class="inline" method="post" action="/account/sign-out"><input type="hidden" name="next" value="${here(asked.id)}">
You are signed in as <strong>${asked.person.email}</strong>. <button type="submit" class="link">Sign in as somebody else</button></form>
<form method="post" action="/agent/authorize">
<input type="hidden" name="pending" value="${asked.id}">
<input type="hidden" name="user" value="${asked.person.userId}">
${undecided}
${organizations(asked, refused)}
${possible && operations(asked, refused)}
<p class="actions">${
      possible && html`<button type="submit" name="decision" value="approve">Approve</button>`
    }<button type="submit" name="decision" value="deny" class="plain" formnovalidate>Deny</button></p>
</form>
`
  })
}

/** Enter in a field presses a form's first button (HTML, section 4.10.21.2): this one, which decides nothing. */
const undecided = html`<button type="submit" name="decision" value="" formnovalidate hidden>Look again</button>`

const who = ({ client: { id, name, firstParty } }: Consent): Html => {
  if (firstParty) {
    return html`<p>A program that calls itself <strong>${name}</strong> asks to act for you. Any program on your computer can
call itself that.</p>`
  }
  const described =
    id.startsWith("https://") && html` It describes itself at <strong>${new URL(id).host}</strong>.`
  return html`<p>A program that calls itself “<strong><bdi>${name}</bdi></strong>” asks to act for you.
It chose this name itself; nobody has checked it.${described}</p>`
}

const organizations = (asked: Consent, refused: Refused | undefined): Html => {
  const { organizations: choices, role } = asked
  if (choices.length === 0) {
    return html`<p>It asks to act as ${withArticle[role]}, and you are ${withArticle[role]} of no organization.
Ask for that role in your organization, or deny the request.</p>`
  }
  return html`<fieldset>
<legend>In which organization, as ${withArticle[role]}?</legend>
${choices.map(
  ({ id, name, slug }) =>
    html`<label class="choice"><input type="radio" name="organization" value="${id}" required${
      id === refused?.organization && html` checked`
    }> <span>${name} <span class="quiet">${slug}</span></span></label>
`
)}</fieldset>`
}

const operations = (asked: Consent, refused: Refused | undefined): Html => {
  const of = (risk: Risk) => asked.operations.filter((operation) => operation.risk === risk)
  const dangerous = of("dangerous")
  return html`<h2>What it may do there</h2>
${
  dangerous.length > 0 &&
  html`<fieldset class="danger">
<legend>Dangerous: only what you tick</legend>
${dangerous.map(
  ({ id, summary }) =>
    html`<label class="choice"><input type="checkbox" name="scope" value="${id}"${
      refused?.ticked.has(id) === true && html` checked`
    }> <span>${summary} <code>${id}</code></span></label>
`
)}</fieldset>`
}
${groups.map(({ risk, title }) => {
  const some = of(risk)
  return some.length === 0
    ? html``
    : html`<h3>${title}</h3>
<ul class="lines">${some.map(({ id, summary }) => html`<li>${summary} <code>${id}</code></li>\n`)}</ul>`
})}
<p>Nothing else, and never more than you may do there yourself. You can take this back at any time, on
<a href="/account/agents">the page of your agents</a>.</p>`
}
