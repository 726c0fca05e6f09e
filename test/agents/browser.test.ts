import { createServer } from "node:http"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type { BrowserContextOptions, Page } from "playwright-core"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { canLook, complaints, inaccessible, OpenBrowser, startsIn, tabTo, window } from "#test/setup/pages.ts"
import { freePort } from "#test/setup/postgres.ts"
import { clientId, clientSecret, identityProvider } from "../identity/provider.ts"
import { mailFor, newcomer } from "../identity/visitor.ts"
import { asking, register, state, waits } from "./asking.ts"

const password = "three words together"
const port = await freePort()

const fixture = testPlane({
  signInRateLimit: 10_000,
  oidcProviders: [
    {
      id: "test",
      name: "Test",
      issuer: `http://127.0.0.1:${port}`,
      clientId,
      clientSecret: Redacted.make(clientSecret)
    }
  ]
})

/**
 * A program that waits for its answer, at a port of its own. Other paths than the callback's show `page`. The callback
 * leads to another origin where `leadsOn` says so.
 */
const program = Effect.fn(function* (page: () => string = () => "", leadsOn = false) {
  const answers: Array<Readonly<Record<string, string>>> = []
  const chosen = yield* Effect.promise(() => freePort())
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://x")
    if (pathname === "/callback") answers.push(Object.fromEntries(searchParams))
    if (leadsOn && pathname === "/callback") {
      response.writeHead(302, { location: `http://localhost:${chosen}/done`, connection: "close" }).end()
      return
    }
    response.writeHead(200, { "content-type": "text/html", connection: "close" })
    response.end(
      `<!doctype html><html lang="en"><title>Program</title><h1>Signed in</h1>${pathname === "/callback" ? "" : page()}</html>`
    )
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => new Promise<void>((resolve) => void server.listen(chosen, "127.0.0.1", resolve))),
    () =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            server.close(() => resolve())
            server.closeAllConnections()
          })
      )
  )
  const origin = `http://127.0.0.1:${chosen}`
  return { origin, answers, callback: `${origin}/callback` }
})

const signedInPage = Effect.fn(function* (session: string, options: BrowserContextOptions = {}) {
  const { url } = yield* Plane
  const context = yield* window(options)
  return yield* Effect.promise(async () => {
    await context.addCookies([{ name: "svc_session", value: session, url }])
    return context.newPage()
  })
})

const at = (page: Page, path: string) => Effect.promise(() => page.waitForURL((url) => url.pathname === path))
const pendingOf = (page: Page) => new URL(page.url()).searchParams.get("pending") ?? ""

layer(Layer.merge(fixture, OpenBrowser.layer), { excludeTestServices: true })(
  "the authorization page in Chromium",
  (it) => {
    // Without a browser there is nothing to look with.
    const test = canLook ? it.effect : it.effect.skip

    test("is answered with the keyboard alone and without a script, and the callback may lead on", () =>
      Effect.gen(function* () {
        const { url } = yield* Plane
        const email = "keys@example.com"
        yield* newcomer(email, password)
        const { answers, callback } = yield* program(() => "", true)
        const context = yield* window({ javaScriptEnabled: false })
        const page = yield* Effect.promise(() => context.newPage())
        const wrong = complaints(page)
        const type = (text: string) => Effect.promise(() => page.keyboard.type(text))
        const press = (key: string) => Effect.promise(() => page.keyboard.press(key))
        const tab = (name: string) => Effect.promise(() => tabTo(page, name))

        yield* Effect.promise(() =>
          page.goto(
            asking({ redirect_uri: callback, scope: "projects.list caches.create resources.abandon" })
          )
        )
        yield* at(page, "/sign-in")
        yield* Effect.promise(() => startsIn(page, "email"))
        yield* type(email)
        yield* tab("password")
        yield* type(password)
        yield* press("Enter")
        yield* at(page, "/agent/authorize")
        const pending = pendingOf(page)
        assert.isTrue(yield* waits(pending))
        // Nothing is chosen yet, not even the one organization, and Enter on it or on a box decides nothing.
        for (const name of ["organization", "scope"]) {
          yield* tab(name)
          yield* press("Enter")
          yield* Effect.promise(() => page.getByText("Press Approve or Deny.").waitFor())
        }
        yield* tab("organization")
        assert.isFalse(yield* Effect.promise(() => page.getByRole("radio").isChecked()))
        yield* press("Space")
        assert.isTrue(yield* Effect.promise(() => page.getByRole("radio").isChecked()))
        yield* tab("scope")
        assert.isFalse(yield* Effect.promise(() => page.getByRole("checkbox").isChecked()))
        yield* press("Space")
        assert.isTrue(yield* Effect.promise(() => page.getByRole("checkbox").isChecked()))
        assert.isTrue(yield* waits(pending))
        yield* tab("Approve")
        yield* press("Enter")
        yield* at(page, "/done")
        assert.strictEqual(yield* Effect.promise(() => page.getByRole("heading").textContent()), "Signed in")
        assert.deepStrictEqual(
          answers.map(({ state, iss, code = "" }) => [state, iss, code.slice(0, 5)]),
          [[state, url, "svcc_"]]
        )
        assert.isFalse(yield* waits(pending))
        assert.deepStrictEqual(wrong, [])
      }))

    test("comes back by mail and from a provider, in other windows too, and then may be denied", () =>
      Effect.gen(function* () {
        const { url, sql } = yield* Plane
        const email = "mailed@example.com"
        yield* newcomer(email)
        const { answers, callback } = yield* program()
        const context = yield* window()
        const [first, second] = yield* Effect.promise(() =>
          Promise.all([context.newPage(), context.newPage()])
        )
        const wrong = [complaints(first), complaints(second)]
        yield* Effect.promise(async () => {
          await first.goto(asking({ redirect_uri: callback }))
          await first.getByRole("link", { name: "Send me a link by mail" }).click()
          await first.getByLabel("E-mail address").fill(email)
          await first.keyboard.press("Enter")
          await first.waitForURL("**/check-mail")
        })
        const { link } = yield* mailFor(email, 2)
        yield* Effect.promise(async () => {
          await second.goto(link)
          await second.getByRole("button", { name: "Sign in" }).click()
        })
        yield* at(second, "/agent/authorize")
        const pending = pendingOf(second)
        assert.isTrue(yield* waits(pending))

        // Somebody else, who signs in with a provider, comes to the same request.
        const idp = yield* identityProvider(port, `${url}/v1/auth/oidc/test/callback`)
        idp.who = { sub: "a1", email: "provided@example.com", name: "Pro Vided" }
        yield* Effect.promise(async () => {
          await second.getByText(email).waitFor()
          await second.getByRole("button", { name: "Sign in as somebody else" }).click()
          await second.getByRole("link", { name: "Sign in with Test" }).click()
          await second.getByText("provided@example.com").waitFor()
        })
        assert.strictEqual(pendingOf(second), pending)
        assert.isTrue(yield* waits(pending))
        yield* Effect.promise(() => second.getByRole("button", { name: "Deny" }).click())
        yield* at(second, "/callback")
        assert.deepStrictEqual(answers, [{ error: "access_denied", state, iss: url }])
        assert.deepStrictEqual(
          yield* sql(
            "select 1 from authorization_code c join account a on a.id = c.user_id where a.email like '%ed@example.com'"
          ),
          []
        )
        assert.deepStrictEqual(wrong, [[], []])
      }))

    test("answers a program that is a page and waits beside the window, also after signing in", () =>
      Effect.gen(function* () {
        const { url } = yield* Plane
        const email = "popup@example.com"
        yield* newcomer(email, password)
        const { answers, callback, origin } = yield* program(() => "<p>Waiting</p>")
        const context = yield* window()
        const page = yield* Effect.promise(() => context.newPage())
        yield* Effect.promise(async () => {
          await page.goto(origin)
          const opened = page.waitForEvent("popup")
          const target = new URL(asking({ redirect_uri: callback }), url).href
          await page.evaluate(`void window.open(${JSON.stringify(target)}, "_blank", "popup")`)
          const popup = await opened
          await popup.getByLabel("E-mail address").fill(email)
          await popup.getByLabel("Password", { exact: true }).fill(password)
          await popup.keyboard.press("Enter")
          await popup.getByRole("radio").check()
          await popup.getByRole("button", { name: "Approve" }).click()
          await popup.waitForURL("**/callback?*")
          assert.strictEqual(await popup.evaluate("window.opener?.location.origin"), origin)
        })
        assert.strictEqual(answers.length, 1)
      }))

    test("is shown in no frame, and takes no form of another site", () =>
      Effect.gen(function* () {
        const { session, url } = yield* Plane
        let shown = ""
        const other = yield* program(() => shown)
        const page = yield* signedInPage(session)
        yield* Effect.promise(() => page.goto(asking({ redirect_uri: other.callback })))
        const pending = pendingOf(page)
        const fields = yield* Effect.promise(() =>
          page
            .locator('form[action="/agent/authorize"] [type=hidden]')
            .evaluateAll((all) => all.map((one) => one.outerHTML))
        )
        const organization = yield* Effect.promise(() =>
          page.getByRole("radio").first().getAttribute("value")
        )
        shown = `<iframe src="${url}/agent/authorize?pending=${pending}"></iframe>`
        yield* Effect.promise(async () => {
          await page.goto(other.origin)
          await page.waitForLoadState("networkidle")
          const framed = page.frames().filter((frame) => frame !== page.mainFrame())
          assert.deepStrictEqual(
            framed.map((frame) => frame.url()),
            ["chrome-error://chromewebdata/"]
          )
        })
        shown = `<form method="post" action="${url}/agent/authorize">${fields.join("")}
          <input type="hidden" name="organization" value="${organization}"><button name="decision" value="approve">Win</button></form>`
        yield* Effect.promise(async () => {
          await page.goto(other.origin)
          await page.getByRole("button", { name: "Win" }).click()
          await page.getByText("This form must be sent from our own pages.").waitFor()
        })
        assert.isTrue(yield* waits(pending))
        assert.deepStrictEqual(other.answers, [])
      }))

    test("passes the checks for accessibility, light and dark, narrow and wide", () =>
      Effect.gen(function* () {
        const { session, sql } = yield* Plane
        const scopes = "projects.list caches.list caches.create env.delete resources.abandon"
        const faults: Array<string> = []
        const registered = yield* register("An agent <with> a name that goes on and on".repeat(2), [
          "https://agents.example/back"
        ])
        const [org] = yield* sql(
          "select id, (select user_id from member where org_id = o.id limit 1) as user from organization o limit 1"
        )
        yield* sql(`insert into agent_grant (org_id, id, user_id, client_id, client_name, audience, role, scopes)
          values ('${org?.["id"]}', gen_random_uuid(), '${org?.["user"]}', 'svc-cli', 'svc command line', 'api', 'admin', '{${scopes.replaceAll(" ", ",")}}')`)
        for (const options of [
          { colorScheme: "light", viewport: { width: 1280, height: 800 } },
          { colorScheme: "dark", viewport: { width: 320, height: 640 } }
        ] as const) {
          const page = yield* signedInPage(session, options)
          const look = (what: string) =>
            Effect.promise(async () => {
              for (const fault of await inaccessible(page))
                faults.push(`${what} (${options.colorScheme}): ${fault}`)
              const wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
              if (wide === true) faults.push(`${what} (${options.colorScheme}) does not fit`)
            })
          const thirdParty = { client_id: registered, redirect_uri: "https://agents.example/back" }
          for (const [what, target] of [
            ["the command line", asking({ scope: scopes })],
            ["an agent", asking({ ...thirdParty, scope: scopes })],
            ["too much", asking({ ...thirdParty, scope: "caches.list", role: "owner" })],
            ["an unknown client", asking({ client_id: "x" })],
            ["what is over", "/agent/authorize?pending=x"],
            ["own agents", "/account/agents"]
          ] as const) {
            yield* Effect.promise(() => page.goto(target))
            yield* look(what)
          }
          yield* Effect.promise(async () => {
            await page.goto(asking({ scope: scopes }))
            await page.getByRole("radio").first().press("Enter")
            await page.getByRole("alert").waitFor()
          })
          yield* look("no decision")
        }
        assert.deepStrictEqual(faults, [])
      }))
  }
)
