/** The dashboard in a browser, on a real control plane. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Page } from "playwright-core"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { nameServer } from "#test/setup/dns.ts"
import { canLook, inaccessible, OpenBrowser } from "#test/setup/pages.ts"
import { buildDashboard } from "../../web/build.ts"
import { editorTests } from "./manifest-editor.ts"
import { panelTests } from "./panels.ts"
import { refusals } from "./refusals.ts"
import {
  applied,
  cuttable,
  data,
  editor,
  inEditor,
  later,
  manifestOf,
  opened,
  pasted,
  screenshot
} from "./world.ts"

await buildDashboard()

const hostile = `<img src=x onerror="document.title='owned'">`

const goByName = async (page: Page, name: string): Promise<void> => {
  await page.keyboard.press("Control+k")
  await page.keyboard.type(name)
  await page.keyboard.press("Enter")
}

const uidOf = Effect.fn(function* (org: string, name: string, token?: string) {
  const { call } = yield* Plane
  const found = yield* call(
    "GET",
    `/v1/orgs/${org}/resources?limit=100`,
    token === undefined ? {} : { token }
  )
  const one = found.body.items.find((item: { readonly name: string }) => item.name === name)
  return String(one.uid)
})

/** With addresses for apps, and a name server that knows of no domain. */
const plane = Layer.unwrap(
  Effect.map(nameServer, ({ address }) =>
    testPlane({}, { SVC_DNS_SERVERS: address, SVC_APPS_DOMAIN: "apps.test", SVC_EDGE_ADDRESSES: "192.0.2.1" })
  )
)

layer(Layer.merge(plane, OpenBrowser.layer), { excludeTestServices: true })("the dashboard", (it) => {
  const test = canLook ? it.effect : it.effect.skip
  refusals(test)

  test("plans a manifest, applies exactly that, and shows it converge", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const { page, wrong, elsewhere } = yield* opened(session, "")
      yield* Effect.promise(async () => {
        await page.waitForURL("**/app/main")
        await page.getByText("There is nothing in this organization yet").waitFor()
        await page.getByRole("link", { name: "Plan a manifest" }).click()
        await pasted(page, "version: 1\norganization: main\nprojects: [{ nam: x }]")
        await page.getByRole("button", { name: "Plan", exact: true }).click()
        await page.getByRole("alert").getByText("/projects/0").first().waitFor()
        // What was typed is kept, also on another page.
        await page.getByRole("link", { name: "Overview" }).click()
        await page.goBack()
        await editor(page).getByText("nam: x").waitFor()
        await pasted(page, manifestOf("main"))
        await page.getByRole("button", { name: "Plan", exact: true }).click()
        await page.getByRole("heading", { name: "Creates" }).waitFor()
        await screenshot(page, "plan")
        // A teammate opens the same address.
        await page.reload()
        await page.getByRole("heading", { name: "Creates" }).waitFor()
        await page.getByRole("button", { name: "Apply exactly this" }).click()
        await page.getByText("Everything that was applied is there.").waitFor()
        await page.getByRole("link", { name: "Overview" }).click()
        await page.getByRole("link", { name: "shop", exact: true }).waitFor()
        await page.goBack()
        await page.getByText("Applied", { exact: false }).first().waitFor()
        assert.strictEqual(await page.getByRole("button", { name: "Apply exactly this" }).count(), 0)
      })
      assert.deepStrictEqual([wrong, elsewhere], [[], []])
    }))

  test("pauses and resumes a resource, and a second tab sees it happen; what people wrote is text", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      yield* applied("main")
      const uid = yield* uidOf("main", "jobs")
      const { context, page, wrong } = yield* opened(session, `main/resources/${uid}`)
      yield* Effect.promise(async () => {
        const other = await context.newPage()
        await other.goto("/app/main")
        await page.getByRole("heading", { name: "jobs" }).waitFor()
        await page.getByText("were given up").waitFor()
        await page.getByRole("button", { name: "Pause" }).click()
        await page.getByRole("alertdialog").getByText("It is observed and not touched").waitFor()
        await page.getByLabel("Reason").fill(hostile)
        await page.getByRole("alertdialog").getByRole("button", { name: "Pause" }).click()
        await page.getByText(hostile).first().waitFor()
        await other.getByText(hostile).first().waitFor()
        // What it does is said first, also from a list.
        await other.getByRole("button", { name: "Resume: jobs" }).click()
        await other.getByRole("alertdialog").getByText("whatever differs").waitFor()
        await other.getByRole("alertdialog").getByRole("button", { name: "Resume" }).click()
        await page.getByRole("button", { name: "Pause" }).waitFor()
        for (const tab of [page, other]) {
          assert.strictEqual(await tab.locator("img").count(), 0)
          assert.notStrictEqual(await tab.title(), "owned")
        }
        await page.getByRole("button", { name: "Publish" }).click()
        await page.getByText("One message is published.").waitFor()
        await screenshot(page, "queue")
        await page.getByRole("button", { name: "Redrive" }).click()
        await page.getByRole("alertdialog").getByText("delivered again").waitFor()
        await page.getByRole("button", { name: "Cancel" }).click()
        // Nothing of one resource's page is on the next one's.
        await goByName(page, "dead")
        await page.getByRole("heading", { name: "dead", level: 1 }).waitFor()
        await page.getByText("were given up").waitFor()
        assert.strictEqual(await page.getByText("One message is published.").count(), 0)
      })
      assert.deepStrictEqual(wrong, [])
    }))

  test("shows a new password once, and keeps it nowhere; silences an alert", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      yield* applied("main", undefined, data)
      const [cache, alert] = [yield* uidOf("main", "sessions"), yield* uidOf("main", "Slow queries")]
      const { page, wrong } = yield* opened(session, `main/resources/${cache}`)
      yield* Effect.promise(async () => {
        await page.getByText("Ready", { exact: true }).first().waitFor()
        await page.getByRole("button", { name: "New password" }).click()
        await page.getByRole("alertdialog").getByText("The old password stops working at once").waitFor()
        await page.getByRole("button", { name: "Replace it" }).click()
        const shown = (await page.getByText(/^rediss:/).textContent()) ?? ""
        await page.getByText("is shown once: copy it now").waitFor()
        await screenshot(page, "password")
        const password = new URL(shown).password
        assert.isAbove(password.length, 20)
        const kept = await page.evaluate(
          "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, history.state, location.href])"
        )
        assert.notInclude(String(kept), password)
        await page.reload()
        await page.getByText("A new one is shown once").waitFor()
        assert.notInclude(await page.content(), password)

        await page.goto(`/app/main/resources/${alert}`)
        await page.getByRole("button", { name: "Silence" }).click()
        await page.getByLabel("Hours").fill("2")
        await page.getByRole("button", { name: "Silence it" }).click()
        await page.getByRole("button", { name: "End the silence" }).click()
        await page.getByRole("button", { name: "Silence", exact: true }).waitFor()
        await screenshot(page, "alert")
      })
      assert.deepStrictEqual(wrong, [])
    }))

  test("hides variables, shows one at a time to whoever asks, and changes one", () =>
    Effect.gen(function* () {
      const { tenant, call } = yield* Plane
      const one = yield* tenant()
      yield* applied(one.slug, one.adminKey)
      const token = one.adminKey
      const env = `/v1/orgs/${one.slug}/projects/shop/env?environment=production`
      const vars = [{ key: "OTHER", value: "not asked for" }]
      yield* call("PUT", env, { token, body: { vars } })
      const { page, wrong } = yield* opened(
        one.owner,
        `${one.slug}/resources/${yield* uidOf(one.slug, "variables", token)}`
      )
      yield* Effect.promise(async () => {
        await page.getByRole("button", { name: "Show TOKEN" }).waitFor()
        assert.notMatch(await page.content(), /secret|not asked for/)
        await page.getByRole("button", { name: "Show TOKEN" }).click()
        await page.getByRole("cell", { name: "secret", exact: true }).waitFor()
        assert.notInclude(await page.content(), "not asked for")
        await screenshot(page, "variables")
        await page.getByRole("button", { name: "Actions: TOKEN" }).click()
        await page.getByRole("menuitem", { name: "Change" }).click()
        await page.getByRole("alertdialog").getByText("Others stay as they are").waitFor()
        await page.getByLabel("Value").fill("value-of-now")
        await page.getByRole("button", { name: "Set it" }).click()
        await page.getByRole("alertdialog").waitFor({ state: "detached" })
        assert.notMatch(await page.content(), />secret<|value-of-now/)
        assert.deepStrictEqual(await inaccessible(page), [])
      })
      const after = yield* call("GET", env, { token })
      assert.sameDeepMembers(after.body, [...vars, { key: "TOKEN", value: "value-of-now" }])
      const member = yield* opened(one.member, new URL(page.url()).pathname.replace("/app/", ""))
      yield* Effect.promise(() => member.page.getByText("Reading it takes the role admin").first().waitFor())
      assert.deepStrictEqual(wrong, [])
    }))

  test("goes by keyboard; back, forward, reload and deep links show what the address names", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      yield* applied("main")
      const { page, wrong } = yield* opened(session, "main/resources?kind=Queue&q=dead")
      yield* Effect.promise(async () => {
        await page.getByRole("link", { name: "dead", exact: true }).waitFor()
        assert.strictEqual(await page.getByRole("link", { name: "jobs", exact: true }).count(), 0)
        await goByName(page, "night")
        await page.getByRole("heading", { name: "nightly" }).waitFor()
        await page.getByText("It has not run yet.").waitFor()
        await page.goBack()
        await page.getByRole("heading", { name: "Queues" }).waitFor()
        await page.goForward()
        await page.reload()
        await page.getByRole("heading", { name: "nightly" }).waitFor()
        await page.goto("/app/main/no-such-page")
        await page.getByRole("heading", { name: "No such page" }).waitFor()
      })
      assert.deepStrictEqual(wrong, [])
    }))

  test("offers a member nothing that a member may not do, and shows nobody another tenant's things", () =>
    Effect.gen(function* () {
      const { tenant } = yield* Plane
      const [one, two] = [yield* tenant(), yield* tenant()]
      yield* applied(one.slug, one.adminKey)
      const uid = yield* uidOf(one.slug, "jobs", one.adminKey)
      const { page } = yield* opened(one.member, `${one.slug}/resources/${uid}`)
      yield* Effect.promise(async () => {
        await page.getByText("Operating it takes the role admin").waitFor()
        assert.strictEqual(await page.getByRole("button", { name: "Pause" }).count(), 0)
        await page.goto(`/app/${one.slug}/plan`)
        await page.getByText("Planning takes the role admin").waitFor()
      })
      const stranger = yield* opened(two.owner, `${two.slug}/resources/${uid}`)
      yield* Effect.promise(async () => {
        await stranger.page.getByRole("heading", { name: "Not here" }).waitFor()
        await stranger.page.goto(`/app/${one.slug}`)
        await stranger.page.getByRole("heading", { name: "No such organization" }).waitFor()
      })
      assert.notInclude(yield* Effect.promise(() => stranger.page.content()), "shop")
    }))

  test("of another organization than the one that is shown nothing is left", () =>
    Effect.gen(function* () {
      const { tenant, sql } = yield* Plane
      const [one, two] = [yield* tenant(), yield* tenant()]
      yield* applied(one.slug, one.adminKey)
      yield* sql(`insert into member (org_id, id, user_id, role) select '${two.id}', gen_random_uuid(), user_id, 'admin'
        from member where org_id = '${one.id}' and role = 'owner'`)
      const { context, page } = yield* opened(one.owner, one.slug)
      const asked = Promise.withResolvers<void>()
      const released = Promise.withResolvers<void>()
      const answered = Promise.withResolvers<void>()
      yield* Effect.promise(async () => {
        await page.getByRole("link", { name: "shop", exact: true }).waitFor()
        // Its manifest is asked for, and comes when another organization is shown.
        await page.route(`**/v1/orgs/${one.slug}/manifest`, async (route) => {
          asked.resolve()
          await released.promise
          await route.fulfill({ contentType: "application/yaml", body: "text: of another" })
          answered.resolve()
        })
        await page.getByRole("link", { name: "Plan", exact: true }).click()
        await page.getByRole("button", { name: "Start from what is there" }).click()
        await asked.promise
        await page.getByRole("combobox", { name: "Organization" }).selectOption(two.slug)
        await page.getByText("There is nothing in this organization yet").waitFor()
        await page.keyboard.press("Control+k")
        await page.keyboard.type("nightly")
        await page.getByText("Nothing has that name.").waitFor()
        await page.keyboard.press("Escape")
        released.resolve()
        await answered.promise
        await page.getByRole("link", { name: "Plan", exact: true }).click()
        // The example stands where nothing is written.
        await editor(page).getByText("name: Shop").waitFor()
        assert.notInclude(await inEditor(page), "of another")
      })
      // Somebody else signs in in another tab, and comes back to this one.
      yield* Effect.promise(async () => {
        await page.getByRole("combobox", { name: "Organization" }).selectOption(one.slug)
        await page.getByRole("link", { name: "shop", exact: true }).waitFor()
        await context.addCookies([{ name: "svc_session", value: two.owner, url: new URL(page.url()).origin }])
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await page.getByRole("heading", { name: "No such organization" }).waitFor()
        assert.notInclude(await page.content(), "shop")
      })
    }))

  test("says that it is stale when the control plane is gone, and comes back by itself with what happened", () =>
    Effect.gen(function* () {
      const { tenant } = yield* Plane
      const one = yield* tenant()
      yield* applied(one.slug, one.adminKey)
      const proxy = yield* cuttable
      const { page } = yield* opened(one.owner, one.slug, { baseURL: proxy.origin })
      const link = (name: string) => page.getByRole("link", { name, exact: true })
      yield* Effect.promise(() => link("shop").waitFor())
      yield* proxy.kill
      yield* Effect.promise(async () => {
        await page.getByText("The control plane cannot be reached").waitFor()
        // A page that was not loaded before says so, and what is there stays.
        await page.getByRole("link", { name: "Members" }).click()
        await page.getByRole("alert").getByText("This page failed").waitFor()
        await page.getByRole("link", { name: "Overview" }).click()
        await link("shop").waitFor()
      })
      yield* applied(one.slug, one.adminKey, later)
      yield* proxy.revive
      yield* Effect.promise(async () => {
        await link("later").waitFor()
        await page.getByText("The control plane cannot be reached").waitFor({ state: "detached" })
        // What was there before was not lost meanwhile.
        await link("shop").waitFor()
      })
    }))

  test("whose script did not arrive says so, and how to go on", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      const { context, page } = yield* opened(session, "main")
      yield* Effect.promise(async () => {
        const scripts = "**/assets/*.js"
        await context.route(scripts, (route) => route.abort())
        await page.reload()
        await page.getByText("The dashboard has not loaded").waitFor()
        await context.unroute(scripts)
        await page.getByRole("link", { name: "Open it again" }).click()
        await page.getByRole("navigation").first().waitFor()
        assert.strictEqual(await page.getByText("The dashboard has not loaded").count(), 0)
      })
    }))

  test("says that the session has ended, and shows nothing more", () =>
    Effect.gen(function* () {
      const { tenant, sql } = yield* Plane
      const one = yield* tenant()
      yield* applied(one.slug, one.adminKey)
      const { page } = yield* opened(one.owner, one.slug)
      yield* Effect.promise(() => page.getByRole("link", { name: "shop", exact: true }).waitFor())
      yield* sql(
        `delete from session where user_id in (select user_id from member where org_id = '${one.id}')`
      )
      yield* applied(one.slug, one.adminKey, later)
      yield* Effect.promise(async () => {
        await page.getByText("Your session has ended").waitFor()
        assert.strictEqual(await page.getByRole("link", { name: "shop", exact: true }).count(), 0)
        await page.getByRole("button", { name: "Sign in" }).first().click()
        await page.waitForURL("**/sign-in?next=*")
      })
    }))

  test("passes the checks for accessibility on every page, and fits every width", () =>
    Effect.gen(function* () {
      const { session } = yield* Plane
      yield* applied("main")
      const [queue, cron] = [yield* uidOf("main", "jobs"), yield* uidOf("main", "nightly")]
      const faults: Array<string> = []
      const { page, wrong, elsewhere } = yield* opened(session, "main")
      const look = async (name: string, dark: boolean, width: number) => {
        await page.emulateMedia({ colorScheme: dark ? "dark" : "light" })
        await page.setViewportSize({ width, height: 860 })
        await screenshot(page, `${name}-${dark ? "dark" : "light"}-${width}`)
        const wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
        if (wide === true) faults.push(`${name} does not fit ${width}`)
      }
      const check = async (name: string) => {
        for (const fault of await inaccessible(page)) faults.push(`${name}: ${fault}`)
      }
      for (const [path, name, heading] of [
        ["main", "overview", "Overview"],
        ["main/resources", "resources", "Resources"],
        [`main/resources/${cron}`, "cron", "nightly"],
        ["main/plan", "plan-form", "Plan a manifest"],
        ["main/audit", "audit", "Audit log"],
        ["main/members", "members", "Members"],
        [`main/resources/${queue}`, "resource", "jobs"]
      ] as const)
        yield* Effect.promise(async () => {
          await page.goto(`/app/${path}`)
          await page.getByRole("heading", { name: heading, level: 1 }).waitFor()
          await page
            .getByText(/^Loading/)
            .first()
            .waitFor({ state: "detached" })
          await look(name, true, 390)
          await look(name, true, 1920)
          await look(name, false, 1280)
          await check(name)
        })
      yield* Effect.promise(async () => {
        await look("resource", true, 390)
        await check("resource in the dark")
      })
      assert.deepStrictEqual([...faults, ...wrong, ...elsewhere], [])
    }))

  editorTests(test)
  panelTests(test)
})
