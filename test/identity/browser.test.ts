import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type { BrowserContext } from "playwright-core"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { canLook, complaints, inaccessible, OpenBrowser, startsIn, tabTo, window } from "#test/setup/pages.ts"
import { freePort } from "#test/setup/postgres.ts"
import { clientId, clientSecret, identityProvider } from "./provider.ts"
import { mailFor, visitor } from "./visitor.ts"

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

layer(Layer.merge(fixture, OpenBrowser.layer), { excludeTestServices: true })("pages in Chromium", (it) => {
  const test = canLook ? it.effect : it.effect.skip

  const flow = (context: BrowserContext, email: string) =>
    Effect.gen(function* () {
      const page = yield* Effect.promise(() => context.newPage())
      const wrong = complaints(page)
      const go = (target: string) => Effect.promise(() => page.goto(target))
      const press = (...keys: ReadonlyArray<string>) =>
        Effect.promise(async () => {
          for (const key of keys) await page.keyboard.press(key)
        })
      const type = (text: string) => Effect.promise(() => page.keyboard.type(text))
      const at = (path: string) => Effect.promise(() => page.waitForURL((url) => url.pathname === path))
      const tab = (name: string) => Effect.promise(() => tabTo(page, name))

      // Sign up: the cursor waits in the first field.
      yield* go("/sign-in")
      yield* tab("Create an account")
      yield* press("Enter")
      yield* at("/sign-up")
      yield* Effect.promise(() => startsIn(page, "name"))
      yield* type("Kay Board")
      yield* tab("email")
      yield* type(email)
      yield* press("Enter")
      yield* at("/check-mail")
      const mail = yield* mailFor(email)
      yield* go(mail.link)
      yield* tab("Sign in")
      yield* press("Enter")
      yield* at("/account/password")
      yield* Effect.promise(() => startsIn(page, "password"))
      yield* type(password)
      yield* press("Enter")
      yield* at("/account")
      assert.strictEqual(
        yield* Effect.promise(() => page.getByRole("status").textContent()),
        "The password is saved."
      )

      // Sign out, and in again: first wrongly, which is announced and leaves the address where it is.
      yield* tab("Sign out")
      yield* press("Enter")
      yield* at("/sign-in")
      yield* Effect.promise(() => startsIn(page, "email"))
      yield* type(email)
      yield* tab("password")
      yield* type("not the password")
      yield* press("Enter")
      yield* Effect.promise(() => page.getByRole("alert").waitFor())
      assert.strictEqual(yield* Effect.promise(() => page.getByLabel("E-mail address").inputValue()), email)
      assert.match(yield* Effect.promise(() => page.title()), /^Problem: /)
      yield* Effect.promise(() => startsIn(page, "password"))
      yield* type(password)
      yield* press("Enter")
      yield* at("/account")
      const cookies = yield* Effect.promise(() => context.cookies())
      const session = cookies.find(({ name }) => name === "svc_session")
      assert.deepStrictEqual([session?.httpOnly, session?.sameSite], [true, "Lax"])
      assert.deepStrictEqual(wrong, [])
      return page
    })

  test("are usable with the keyboard alone, from signing up to signing in again", () =>
    Effect.gen(function* () {
      const page = yield* flow(yield* window(), "keys@example.com")
      const scripts = yield* Effect.promise(() => page.evaluate("document.cookie"))
      assert.strictEqual(scripts, "")
    }))

  test("need no script", () =>
    Effect.gen(function* () {
      const context = yield* window({ javaScriptEnabled: false })
      const page = yield* Effect.promise(() => context.newPage())
      const email = "noscript@example.com"
      yield* Effect.promise(async () => {
        await page.goto("/sign-up")
        await page.getByLabel("Your name").fill("No Script")
        await page.getByLabel("E-mail address").fill(email)
        await page.getByRole("button", { name: "Send the link" }).click()
        await page.waitForURL("**/check-mail")
      })
      const { link } = yield* mailFor(email)
      yield* Effect.promise(async () => {
        await page.goto(link)
        await page.getByRole("button", { name: "Sign in" }).click()
        await page.getByRole("link", { name: "Not now" }).click()
        await page.waitForURL("**/account")
        await page.getByRole("button", { name: "Sign out everywhere" }).click()
        await page.waitForURL("**/sign-in")
      })
      assert.deepStrictEqual(yield* Effect.promise(() => context.cookies()), [])
    }))

  test("pass the checks for accessibility, light and dark, narrow and wide", () =>
    Effect.gen(function* () {
      const email = "axe@example.com"
      for (const options of [
        { colorScheme: "light", viewport: { width: 1280, height: 800 } },
        { colorScheme: "dark", viewport: { width: 320, height: 640 } }
      ] as const) {
        const context = yield* window(options)
        const page = yield* Effect.promise(() => context.newPage())
        const faults: Array<string> = []
        const look = (target: string) =>
          Effect.promise(async () => {
            await page.goto(target)
            for (const fault of await inaccessible(page))
              faults.push(`${target} (${options.colorScheme}): ${fault}`)
            const wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
            if (wide === true) faults.push(`${target} does not fit`)
          })
        for (const target of [
          "/sign-in",
          "/sign-in/by-mail",
          "/sign-up",
          "/check-mail",
          "/reset-password",
          "/sign-in/link?token=x"
        ])
          yield* look(target)
        yield* Effect.promise(async () => {
          await page.goto("/sign-in")
          await page.getByLabel("E-mail address").fill(email)
          await page.getByLabel("Password", { exact: true }).fill("wrong wrong wrong")
          await page.keyboard.press("Enter")
          await page.getByRole("alert").waitFor()
          for (const fault of await inaccessible(page)) faults.push(`/sign-in, refused: ${fault}`)
        })
        const before = options.colorScheme === "light" ? 0 : 1
        const other = yield* visitor
        yield* other.post("/sign-in/by-mail", { email, next: "" })
        const { link } = yield* mailFor(email, before + 1)
        yield* look(link)
        yield* Effect.promise(async () => {
          await page.getByRole("button", { name: "Sign in" }).click()
          await page.waitForURL((url) => url.pathname.startsWith("/account"))
        })
        for (const target of ["/account", "/account/password", "/account/prove"]) yield* look(target)
        assert.deepStrictEqual(faults, [])
      }
    }))

  test("an invitation is accepted by somebody new, from the mail to the organization", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const owner = yield* visitor
      owner.cookies.set("svc_session", session)
      const email = "invited@example.com"
      yield* owner.json("POST", "/v1/orgs/main/invitations", { email, role: "admin" })
      const invited = yield* mailFor(email)
      const context = yield* window()
      const page = yield* Effect.promise(() => context.newPage())
      const wrong = complaints(page)
      yield* Effect.promise(async () => {
        await page.goto(invited.link)
        assert.deepStrictEqual(await inaccessible(page), [])
        await page.getByRole("link", { name: "Create an account" }).click()
        await page.getByLabel("Your name").fill("In Vited")
        await page.getByLabel("E-mail address").fill(email)
        await page.keyboard.press("Enter")
        await page.waitForURL("**/check-mail")
      })
      const { link } = yield* mailFor(email, 2)
      yield* Effect.promise(async () => {
        await page.goto(link)
        await page.getByRole("button", { name: "Sign in" }).click()
        await page.getByRole("link", { name: "Not now" }).click()
        await page.waitForURL((url) => url.pathname === "/invitation")
        assert.deepStrictEqual(await inaccessible(page), [])
        await page.getByRole("button", { name: "Accept the invitation" }).click()
        await page.getByText("Main (main): admin").waitFor()
      })
      assert.deepStrictEqual(wrong, [])
    }))

  test("a forgotten password is replaced, and a provider signs in", () =>
    Effect.gen(function* () {
      const email = "forgot@example.com"
      const context = yield* window()
      yield* flow(context, email)
      const fresh = yield* window()
      const page = yield* Effect.promise(() => fresh.newPage())
      yield* Effect.promise(async () => {
        await page.goto("/sign-in")
        await page.getByRole("link", { name: "I forgot my password" }).click()
        await page.getByLabel("E-mail address").fill(email)
        await page.keyboard.press("Enter")
        await page.waitForURL("**/check-mail")
      })
      const { link } = yield* mailFor(email, 3)
      yield* Effect.promise(async () => {
        await page.goto(link)
        assert.deepStrictEqual(await inaccessible(page), [])
        await page.getByLabel("New password").fill("completely other words")
        await page.keyboard.press("Enter")
        await page.waitForURL("**/account")
      })
      const { url } = yield* Plane
      const idp = yield* identityProvider(port, `${url}/v1/auth/oidc/test/callback`)
      idp.who = { sub: "c1", email: "provided@example.com", name: "Pro Vided" }
      const third = yield* window()
      const other = yield* Effect.promise(() => third.newPage())
      const wrong = complaints(other)
      yield* Effect.promise(async () => {
        await other.goto("/account")
        await other.getByRole("link", { name: "Sign in with Test" }).click()
        await other.waitForURL("**/account")
        await other.getByText("provided@example.com").waitFor()
      })
      assert.deepStrictEqual(wrong, [])
    }))
})
