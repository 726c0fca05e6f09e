/** What a person let agents do, in all of their organizations, and taking it back. */
import { type Html, html, page } from "#src/identity/pages/html.ts"
import { timeOf } from "#src/identity/pages/views.ts"
import type { OwnGrant } from "../AgentGrants.ts"
import { withArticle } from "./words.ts"

export const grants = (own: ReadonlyArray<OwnGrant>, done: string | undefined) =>
  page({
    title: "Your agents",
    wide: true,
    body: html`${done !== undefined && html`<p role="status">${done}</p>`}
<p>Programs that you let act for you. Taking it back counts from their next request on.</p>
${own.length === 0 ? html`<p>There is none.</p>` : html`<ul class="lines">${own.map(line)}</ul>`}
<p><a href="/account">Your account</a></p>`
  })

const line = (grant: OwnGrant): Html => html`<li><strong><bdi>${grant.clientName}</bdi></strong> in
<strong>${grant.organization}</strong>, as ${withArticle[grant.role]}
<p class="hint">Since ${timeOf(grant.createdAt)}, ${
  grant.lastUsedAt === null ? "not used yet" : html`last used ${timeOf(grant.lastUsedAt)}`
}. Ends on ${timeOf(grant.expiresAt)} if it is not used</p>
<details><summary>${grant.scopes.length === 1 ? "1 operation" : `${grant.scopes.length} operations`}</summary>
<p><code>${grant.scopes.join(", ")}</code></p></details>
<form method="post" action="/account/agents/revoke"><input type="hidden" name="organization" value="${grant.orgId}"><input
type="hidden" name="grant" value="${grant.grantId}"><button type="submit" class="plain"
aria-label="Revoke ${grant.clientName} in ${grant.organization}">Revoke</button></form></li>
`
