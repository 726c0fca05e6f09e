import { assert, it } from "@effect/vitest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import { html, page } from "#src/identity/pages/html.ts"
import { belowPath } from "#src/identity/pages/path-prefix.ts"

const textOf = ({ body }: HttpServerResponse.HttpServerResponse) =>
  body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : ""

it("paths of pages and of cookies get what a proxy has taken away; text that looks like one does not", () => {
  const below = belowPath("/svc")
  const said = 'href="/evil"'
  const shown = below(
    page({ title: said, body: html`<a href="/account">${said}</a> <a href="https://x.example/">x</a>` })
  )
  const text = textOf(shown)
  assert.include(text, '<a href="/svc/account">href=&quot;/evil&quot;</a> <a href="https://x.example/">')
  assert.strictEqual(shown.headers["content-length"], String(Buffer.byteLength(text)))
  assert.include(shown.headers["content-security-policy"], "form-action 'self'")
  const left = HttpServerResponse.redirect("https://provider.example/").pipe(
    HttpServerResponse.setCookieUnsafe("flow", "1", { path: "/v1/auth/oidc/", httpOnly: true }),
    HttpServerResponse.setCookieUnsafe("svc_session", "2", { path: "/" })
  )
  const { cookies, headers } = below(left)
  assert.strictEqual(headers["location"], "https://provider.example/")
  assert.deepStrictEqual(
    Object.values(cookies.cookies).map(({ name, options }) => [name, options?.path, options?.httpOnly]),
    [
      ["flow", "/svc/v1/auth/oidc/", true],
      ["svc_session", "/", undefined]
    ]
  )
})
