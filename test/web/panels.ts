/** Pages of what comes from outside: agents that were let in, a manifest in a repository, a domain that others own. */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { requestsOf, tokensFor } from "#test/agents/plane.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { answeringNode } from "#test/setup/edge-node.ts"
import { eventually } from "#test/setup/wait.ts"
import { applied, closed, inDialog, lookOver, opened, said, type Test } from "./world.ts"

const relay = `  - name: Relay
    slug: relay
    runtimeClass: always-on
    queues: [{ name: inbox, deadLetterQueue: null }]
    crons: [{ name: tick, schedule: "0 3 * * *", environment: production, target: { kind: queue, queue: inbox } }]
`

export const panelTests = (test: Test): void => {
  test("what an agent was granted is seen with all that it may, and taken back", () =>
    Effect.gen(function* () {
      const { tenant, call } = yield* Plane
      const mine = yield* tenant()
      const { access } = yield* tokensFor(yield* requestsOf, { tenant: mine })
      const { page, wrong } = yield* opened(mine.owner, `${mine.slug}/keys`)
      const grants = page.getByRole("table", { name: "Grants" })
      yield* Effect.promise(async () => {
        await grants.getByText("3 operations").click()
        await grants.getByText("projects.create").waitFor()
        await lookOver(page, "grants")
      })
      const list = call("GET", `/v1/orgs/${mine.slug}/projects`, { token: access })
      assert.strictEqual((yield* list).status, 200)
      yield* Effect.promise(async () => {
        await grants.getByRole("button", { name: /^Actions: / }).click()
        await page.getByRole("menuitem", { name: "Revoke" }).click()
        await page.getByRole("alertdialog").getByText("refused at once").waitFor()
        await inDialog(page, "Revoke it")
        await closed(page)
        await grants.getByText(/^revoked/).waitFor()
      })
      assert.strictEqual((yield* list).status, 401)
      assert.deepStrictEqual(wrong, [])
    }).pipe(Effect.scoped))

  test("a git source that cannot be read says why; it is suspended, resumed, and deleted by its name", () =>
    Effect.gen(function* () {
      const { tenant, call } = yield* Plane
      const mine = yield* tenant()
      const sources = `/v1/orgs/${mine.slug}/git-sources`
      const made = yield* call("POST", sources, {
        token: mine.adminKey,
        body: { name: "everything", url: "https://127.0.0.1:9/acme/all.git" }
      })
      assert.strictEqual(made.status, 201, made.text)
      const { page, wrong } = yield* opened(mine.owner, `${mine.slug}/resources/${made.body.id}`)
      yield* Effect.promise(async () => {
        await page.getByRole("heading", { name: "everything", level: 1 }).waitFor()
        await page.getByRole("main").getByRole("alert").getByText("127.0.0.1").waitFor()
        await lookOver(page, "git-source")
        await page.getByRole("button", { name: "Suspend", exact: true }).click()
        await page.getByRole("alertdialog").getByText("nothing is applied from it").waitFor()
        await inDialog(page, "Suspend it")
        await closed(page)
        await page.getByRole("button", { name: "Resume", exact: true }).click()
        await inDialog(page, "Resume it")
        await closed(page)
        await page.getByRole("button", { name: "Sync now" }).click()
        await page.getByRole("button", { name: "Suspend", exact: true }).waitFor()

        await page.getByRole("button", { name: "Delete", exact: true }).click()
        await page.getByLabel("Name, to confirm").fill("everythin")
        const deletes = page.getByRole("button", { name: "Delete it" })
        assert.isTrue(await deletes.isDisabled())
        await page.getByLabel("Name, to confirm").fill("everything")
        await deletes.click()
        await closed(page)
      })
      yield* eventually(
        "it is gone",
        call("GET", `${sources}/${made.body.id}`, { token: mine.adminKey }),
        ({ status }) => status === 404
      )
      assert.deepStrictEqual(wrong, [])
    }))

  test("a domain that is not proved says what its DNS has to say; one that is refused stays in its field", () =>
    Effect.gen(function* () {
      const { tenant, call, databaseUrl } = yield* Plane
      yield* answeringNode(databaseUrl)
      const mine = yield* tenant()
      const body = { name: "Shop", slug: "shop" }
      const made = yield* call("POST", `/v1/orgs/${mine.slug}/projects`, { token: mine.adminKey, body })
      assert.strictEqual(made.status, 201, made.text)
      const { page, wrong } = yield* opened(mine.owner, `${mine.slug}/projects/shop?show=domains`)
      yield* Effect.promise(async () => {
        await page.getByRole("button", { name: "Add a domain" }).click()
        await page.getByLabel("Host name").fill("www.apps.test")
        await inDialog(page, "Add it")
        await page.getByRole("alertdialog").getByRole("alert").waitFor()
        assert.strictEqual(await page.getByLabel("Host name").inputValue(), "www.apps.test")
        await page.getByLabel("Host name").fill(`www.${mine.slug}.example.com`)
        await inDialog(page, "Add it")
        await page.getByRole("heading", { name: `www.${mine.slug}.example.com`, level: 1 }).waitFor()
        await said(page, "waits for DNS")
        await page.getByText(/CNAME/).first().waitFor()
        await page.getByRole("button", { name: "Check now" }).click()
        await said(page, /not in DNS yet/)
        await lookOver(page, "domain")
        await page.getByRole("button", { name: "Change", exact: true }).click()
        await page.getByLabel("Strict-Transport-Security, seconds").fill("60")
        await inDialog(page, "Change it")
        await closed(page)
        await page.getByRole("button", { name: "Remove", exact: true }).click()
        await page.getByRole("alertdialog").getByText("not answered any more").waitFor()
        await inDialog(page, "Remove it")
        await closed(page)
      })
      yield* eventually(
        "it is gone",
        call("GET", `/v1/orgs/${mine.slug}/projects/shop/domains`, { token: mine.adminKey }),
        ({ body }) => body.length === 0
      )
      assert.deepStrictEqual(wrong, [])
    }).pipe(Effect.scoped))

  test("what waits for another one has an arrow to it, until that one has come", () =>
    Effect.gen(function* () {
      const { tenant, call } = yield* Plane
      const mine = yield* tenant()
      const token = mine.adminKey
      const resources = `/v1/orgs/${mine.slug}/resources`
      yield* applied(mine.slug, token, relay)
      const { body: listed } = yield* call("GET", `${resources}?limit=100`, { token })
      const uidOf = (name: string): string =>
        listed.items.find((one: { readonly name: string }) => one.name === name).uid
      const { page, wrong } = yield* opened(mine.owner, `${mine.slug}/resources/${uidOf("inbox")}`)
      yield* Effect.promise(async () => {
        await page.getByRole("button", { name: "Abandon", exact: true }).click()
        await page.getByRole("alertdialog").getByText("nothing real is removed").waitFor()
        await page.getByLabel("Reason").fill("moved elsewhere")
        await page.getByLabel("Name, to confirm").fill("inbox")
        await inDialog(page, "Abandon it")
        await closed(page)
        await page.goto(`/app/${mine.slug}/resources/${uidOf("tick")}`)
        await page.getByRole("button", { name: "Look now" }).click()
      })
      const missing = page.getByText("relay/production/Queue/inbox", { exact: true })
      yield* Effect.promise(async () => {
        await missing.waitFor()
        await page.getByText(", which is not there").waitFor()
        await lookOver(page, "waiting")
        await page.setViewportSize({ width: 1280, height: 860 })
        await page.getByRole("link", { name: /^Resources/ }).click()
        await missing.waitFor()
        await page.getByText("waits for").waitFor()
      })
      yield* applied(mine.slug, token, relay)
      yield* Effect.promise(async () => {
        await page.getByText(", which is not there").waitFor({ state: "detached" })
        await page.getByText("Ready", { exact: true }).first().waitFor()
      })
      assert.deepStrictEqual(wrong, [])
    }))
}
