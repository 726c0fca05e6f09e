/** Signing in to a protected app in a real browser, and back; and what its pages look like to those who need more. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Plane } from "#test/setup/control-plane.ts"
import { TestEdge, testApp, testEdge } from "#test/setup/edge.ts"
import { canLook, inaccessible, OpenBrowser, window } from "#test/setup/pages.ts"
import { eventually } from "#test/setup/wait.ts"
import { newcomer } from "../identity/visitor.ts"

const password = "three words together"

layer(Layer.merge(testEdge({ signInRateLimit: 10_000 }), OpenBrowser.layer), {
  excludeTestServices: true,
  timeout: "4 minutes"
})("a browser", (it) => {
  const test = canLook ? it.effect : it.effect.skip
  test(
    "signs in on the way to a protected app, agrees, and comes back to the page that it wanted",
    () =>
      Effect.gen(function* () {
        const { call, tenant } = yield* Plane
        const { appsDomain } = yield* TestEdge
        const { origin } = yield* testApp((request, response) => {
          response.writeHead(200, { "content-type": "text/html" })
          const user = String(request.headers["x-svc-user"]).split(".")[1] ?? ""
          const { email } = JSON.parse(Buffer.from(user, "base64url").toString() || "{}")
          response.end(
            `<title>${email}</title><h1>${request.url} ${request.headers.cookie ?? "no cookies"}</h1>`
          )
        })
        const mine = yield* tenant()
        const token = mine.owner
        const projects = `/v1/orgs/${mine.slug}/projects`
        yield* call("POST", projects, { token, body: { name: "Shop", slug: "shop" } })
        yield* call("PUT", `${projects}/shop/access`, { token, body: { mode: "authenticated" } })
        const environments = `${projects}/shop/environments`
        yield* call("PATCH", `${environments}/production`, { token, body: { origin } })
        const email = `ada-${mine.slug}@example.test`
        yield* newcomer(email, password)
        const { address } = yield* eventually(
          "it has an address",
          Effect.map(call("GET", environments, { token }), ({ body }) =>
            body.find((one: { slug: string }) => one.slug === "production")
          ),
          (one) => typeof one?.address === "string"
        )
        assert.isTrue(new URL(address).hostname.endsWith(`.${appsDomain}`))
        const { request } = yield* TestEdge
        yield* eventually(
          "it is protected",
          Effect.map(request(new URL(address).hostname, "/"), ({ status }) => status === 401)
        )
        // The certificate of the edge is of the internal authority, which no browser knows.
        const context = yield* window({ ignoreHTTPSErrors: true })
        const page = yield* Effect.promise(() => context.newPage())
        yield* Effect.promise(async () => {
          await page.goto(`${address}/cart?step=2`)
          assert.strictEqual(await page.title(), "Sign in")
          await page.fill("input[name=email]", email)
          await page.fill("input[name=password]", password)
          await page.press("input[name=password]", "Enter")
          await page.getByRole("button", { name: "Go on" }).waitFor()
          assert.deepStrictEqual(await inaccessible(page), [])
          await page.getByRole("button", { name: "Go on" }).click()
          await page.waitForURL(`${address}/cart?step=2`)
          assert.strictEqual(await page.title(), email)
          assert.strictEqual(await page.textContent("h1"), "/cart?step=2 no cookies")
          const cookies = await page.context().cookies(address)
          assert.sameMembers(
            cookies.map(({ name }) => name),
            // The last one is for other tabs that set out with it, and ends by itself.
            ["__Host-svc_access", "__Host-svc_visitor", "__Host-svc_state"]
          )
          assert.isTrue(cookies.every((one) => one.httpOnly && one.secure && one.sameSite === "Lax"))
          // Its ticket has ended: the next page is shown all the same.
          await page.context().clearCookies({ name: "__Host-svc_access" })
          await page.goto(`${address}/later`)
          assert.strictEqual(await page.title(), email)
          const renewed = await page.context().cookies(address)
          assert.include(
            renewed.map(({ name }) => name),
            "__Host-svc_access"
          )
          await page.context().clearCookies({ name: /^__Host-svc_/ })
        })
        yield* call("PUT", `${projects}/shop/access`, { token, body: { mode: "organization" } })
        yield* eventually(
          "it is for members",
          Effect.map(call("GET", `${projects}/shop/access`, { token }), ({ body }) => body.status === "ready")
        )
        yield* Effect.promise(async () => {
          await page.goto(`${address}/later`)
          assert.strictEqual(await page.title(), "You may not see this")
          assert.deepStrictEqual(await inaccessible(page), [])
        })
      }),
    240_000
  )
})
