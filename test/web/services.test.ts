/** The pages of services in a browser, each with its main task. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Page } from "playwright-core"
import { parse } from "yaml"
import { campaign } from "#test/campaigns/campaign.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { canLook, OpenBrowser } from "#test/setup/pages.ts"
import { buildDashboard } from "../../web/build.ts"
import { closed, fromMenu, inDialog, lookOver, opened, said } from "./world.ts"

await buildDashboard()

const manifest = `version: 1
organization: main
projects:
  - name: Store
    slug: store
    runtimeClass: always-on
    databases: [{ name: main, sku: db-n1, region: local }]
    aiGateways: [{ name: writer, environment: production, allowedModels: [svc/fast], monthlyBudgetUsd: 20 }]
`

const world = Effect.gen(function* () {
  const { call } = yield* Plane
  const answer = yield* call("POST", "/v1/orgs/main/manifest/apply", { body: { manifest: parse(manifest) } })
  assert.strictEqual(answer.status, 202, answer.text)
  const { body } = yield* call("GET", "/v1/orgs/main/resources?limit=100")
  return (kind: string): string =>
    String(
      body.items.find(
        (one: { readonly kind: string; readonly project: string }) =>
          one.kind === kind && one.project === "store"
      ).uid
    )
})

/** The secret that is shown this once; hidden, it is nowhere any more. */
const shownOnce = async (page: Page, pattern: RegExp): Promise<void> => {
  await said(page, "is shown once: copy it now")
  const secret = (await page.locator("code").filter({ hasText: pattern }).textContent()) ?? ""
  await page.getByRole("button", { name: "Hide" }).click()
  const kept = await page.evaluate(
    "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, history.state, location.href, document.body.innerHTML])"
  )
  assert.isAbove(secret.length, 20)
  assert.notInclude(String(kept), secret)
}

const vital = (metric: string, p75: number, rating: string) => ({
  metric,
  unit: metric === "CLS" ? "score" : "milliseconds",
  rating,
  samples: 40,
  p75,
  p90: p75,
  p95: p75,
  p99: p75
})
const measured = { score: 61, samples: 80, vitals: [vital("LCP", 4_321, "poor"), vital("CLS", 0.04, "good")] }
const report = {
  from: "2026-11-20T00:00:00.000Z",
  until: "2026-11-22T00:00:00.000Z",
  retentionDays: 30,
  summary: measured,
  series: [
    { bucket: "2026-11-20T00:00:00.000Z", score: 70, samples: 40 },
    { bucket: "2026-11-21T00:00:00.000Z", score: null, samples: 40 }
  ],
  routes: [{ route: "/cart/:id", ...measured }]
}

const plane = Layer.merge(testPlane({}, { SVC_APPS_DOMAIN: "apps.test" }), OpenBrowser.layer)

layer(plane, { excludeTestServices: true })("the dashboard of services", (it) => {
  const test = canLook ? it.effect : it.effect.skip

  campaign(
    test,
    "dashboard-database",
    "a moment of a database is picked, branched from, and what a restore does is said first",
    { rounds: 0 },
    () =>
      Effect.gen(function* () {
        const { session, call } = yield* Plane
        const uid = (yield* world)("Database")
        const { page, wrong, elsewhere } = yield* opened(session, `main/resources/${uid}`)
        yield* Effect.promise(async () => {
          // The clock of this computer is an hour ahead; what is offered first is the newest moment all the same.
          await page.addInitScript("{ const now = Date.now; Date.now = () => now() + 3_600_000 }")
          await page.reload()
          await page.getByRole("slider", { name: "Moment" }).waitFor()
          await page.getByRole("cell", { name: "the first one" }).waitFor()
          await said(page, "any moment can be had")
          await page.getByRole("button", { name: "Restore to here" }).click()
          await page.getByRole("alertdialog").getByText("takes its place").waitFor()
          assert.isTrue(await page.getByRole("button", { name: "Restore it" }).isDisabled())
          await page.getByLabel("Name of the database, to confirm").fill("main")
          assert.isFalse(await page.getByRole("button", { name: "Restore it" }).isDisabled())
          await inDialog(page, "Cancel")
          await closed(page)
          // Before there was anything to go back to nothing is offered.
          await page.getByLabel("Exactly, in your time zone").fill("2020-01-01T00:00:00")
          await said(page, "The log has a gap there")
          assert.isTrue(await page.getByRole("button", { name: "Restore to here" }).isDisabled())
          await page.getByRole("slider", { name: "Moment" }).press("End")
          await page.getByRole("button", { name: "Branch from here" }).click()
          await page.getByRole("alertdialog").getByText("A full copy on a server of its own").waitFor()
          await page.getByLabel("Name", { exact: true }).fill("friday")
          await inDialog(page, "Make the branch")
          await page.getByRole("link", { name: "friday" }).first().waitFor()
          await lookOver(page, "database")
          await page.getByRole("link", { name: "friday" }).first().click()
          await page.getByRole("heading", { name: "friday", level: 1 }).waitFor()
          await page.getByRole("button", { name: "Change expiry" }).click()
          await page.getByLabel("Days").fill("")
          await inDialog(page, "Set it")
          await closed(page)
        })
        const branches = yield* call("GET", `/v1/orgs/main/projects/store/databases/${uid}/branches`)
        const [branch] = branches.body
        assert.deepStrictEqual(
          [branch.name, branch.source.kind, branch.expiresAt],
          ["friday", "point_in_time", null]
        )
        assert.deepStrictEqual([wrong, elsewhere], [[], []])
      })
  )

  campaign(
    test,
    "dashboard-project",
    "a project's budget, visitors and speed; a gateway's key; a fork's commit is approved",
    { rounds: 0 },
    () =>
      Effect.gen(function* () {
        const { session, call } = yield* Plane
        const gateway = (yield* world)("AiGateway")
        const commit = "a".repeat(40)
        const made = yield* call("POST", "/v1/orgs/main/projects/store/previews", {
          body: { pullRequest: 7, commit, fork: true, title: "Theirs" }
        })
        const { page, wrong } = yield* opened(session, "main/projects")
        yield* Effect.promise(async () => {
          await page.getByRole("link", { name: "store", exact: true }).click()
          await page.getByRole("button", { name: "Change" }).click()
          await page.getByLabel("Cap, US dollars a month").fill("50")
          await inDialog(page, "Set it")
          await closed(page)
          await said(page, "50.00 USD")
          await lookOver(page, "budget")

          await page.getByRole("link", { name: "Access", exact: true }).click()
          await page.getByLabel("E-mail address").fill("someone@example.test")
          await page.getByRole("button", { name: "Invite" }).click()
          await page.getByRole("cell", { name: "someone@example.test", exact: true }).waitFor()
          await page.getByRole("button", { name: "Change" }).click()
          await page.getByLabel("Environments").selectOption("invite_only")
          await inDialog(page, "Change it")
          await closed(page)
          await page.getByRole("cell", { name: "invited addresses" }).first().waitFor()
          await lookOver(page, "access")

          await page.route("**/speed-insights/query", (route) => route.fulfill({ json: report }))
          await page.getByRole("link", { name: "Speed", exact: true }).click()
          await page.getByRole("button", { name: "Measure pages" }).click()
          await inDialog(page, "Measure them")
          await said(page, "Pages are measured, 100 % of visits")
          await page.getByRole("row", { name: /cart.*4[.]32 s.*0[.]04/ }).waitFor()
          await page.getByTitle("poor").first().waitFor()
          await page.getByRole("img", { name: /Score of 2 times/ }).waitFor()
          await lookOver(page, "speed")

          for (const [name, heading] of [
            ["Domains", "Custom domains"],
            ["Executions", "Executions"],
            ["Payments", "Stripe account"]
          ] as const) {
            await page.getByRole("link", { name, exact: true }).last().click()
            await page.getByRole("heading", { name: heading }).waitFor()
            await page
              .getByText(/^Loading/)
              .first()
              .waitFor({ state: "detached" })
          }

          await page.goto(`/app/main/resources/${gateway}`)
          await page.getByRole("button", { name: "Create a key" }).click()
          await page.getByLabel("Name", { exact: true }).fill("laptop")
          await inDialog(page, "Create it")
          await shownOnce(page, /^svcgw_/)
          await fromMenu(page, "Actions: laptop", "Revoke")
          await inDialog(page, "Revoke it")
          await closed(page)

          await lookOver(page, "gateway")
          await page.goto(`/app/main/resources/${made.body.id}`)
          await page.getByRole("button", { name: "Approve this commit" }).click()
          await page.getByRole("alertdialog").getByText("somebody else's repository").waitFor()
          await inDialog(page, "Approve this commit")
          await closed(page)
          await page.getByRole("button", { name: "Approve this commit" }).waitFor({ state: "detached" })
          await lookOver(page, "preview")
        })
        const keys = yield* call("GET", `/v1/orgs/main/projects/store/ai-gateways/${gateway}/keys`)
        assert.isNotNull(keys.body[0].revokedAt)
        const preview = yield* call("GET", `/v1/orgs/main/projects/store/previews/${made.body.id}`)
        assert.strictEqual(preview.body.approvedCommit, commit)
        assert.deepStrictEqual(wrong, [])
      })
  )

  campaign(
    test,
    "dashboard-organization",
    "webhooks, keys, invitations, forges and destinations of an organization",
    { rounds: 0 },
    () =>
      Effect.gen(function* () {
        const { tenant, call } = yield* Plane
        const one = yield* tenant()
        const { page, wrong } = yield* opened(one.owner, `${one.slug}/webhooks`)
        const connect = call("POST", `/v1/orgs/${one.slug}/git-connections`, {
          token: one.adminKey,
          body: {
            name: "made-elsewhere",
            kind: "gitea",
            owner: "acme",
            url: "https://127.0.0.1:9",
            token: "not-a-real-one"
          }
        })
        yield* Effect.promise(async () => {
          await page.getByRole("button", { name: "Add an endpoint" }).click()
          await page.getByLabel("Address").fill("https://127.0.0.1:9/hooks")
          await inDialog(page, "Add it")
          await shownOnce(page, /^whsec_/)
          await fromMenu(page, "Actions: https://127.0.0.1:9/hooks", "Send a test")
          await page.getByText("webhook.test").first().waitFor()
          await fromMenu(page, /^Actions: webhook[.]test/, "Send again")
          await page.getByText("webhook.test").nth(1).waitFor()
          await lookOver(page, "webhooks")

          await page.getByRole("link", { name: "Keys and agents" }).click()
          await page.getByRole("button", { name: "Create a key" }).click()
          await page.getByLabel("Name", { exact: true }).fill("deploys")
          await inDialog(page, "Create it")
          await shownOnce(page, /^svc_/)
          await fromMenu(page, "Actions: deploys", "Revoke")
          await inDialog(page, "Revoke it")
          await closed(page)
          await page
            .getByRole("row", { name: /deploys/ })
            .getByRole("time")
            .last()
            .waitFor()

          await lookOver(page, "keys")
          await page.getByRole("link", { name: "Members" }).click()
          await page.getByRole("button", { name: "Invite somebody" }).click()
          await page.getByLabel("E-mail address").fill("new@example.test")
          await inDialog(page, "Send the invitation")
          await page.getByRole("cell", { name: "new@example.test", exact: true }).waitFor()
          await lookOver(page, "members")
          await fromMenu(page, "Actions: new@example.test", "Take it back")
          await page
            .getByRole("cell", { name: "new@example.test", exact: true })
            .waitFor({ state: "detached" })

          for (const [link, empty] of [
            ["Git", "No forge is connected"],
            ["Backup destinations", "Backups are kept on this machine only"]
          ] as const) {
            await page.getByRole("link", { name: link, exact: true }).click()
            await said(page, empty)
            await lookOver(page, link)
            if (link !== "Git") continue
            // Whoever comes back to the page sees what was connected elsewhere.
            assert.strictEqual((await Effect.runPromise(connect)).status, 201)
            await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            await page.getByRole("cell", { name: "made-elsewhere", exact: true }).waitFor()
          }
          await page.getByRole("button", { name: "Add a destination" }).click()
          await page.getByLabel("Name", { exact: true }).fill("offsite")
          await page.getByLabel("Address of the service").fill("https://127.0.0.1:9")
          await page.getByLabel("Bucket").fill("backups")
          await page.getByLabel("Access key id").fill("AKIA")
          await page.getByLabel("Secret access key").fill("not-a-real-one")
          await inDialog(page, "Test and add it")
          // What is wrong is said, and what was typed stays.
          await page.getByRole("alertdialog").getByRole("alert").waitFor()
          assert.strictEqual(await page.getByLabel("Bucket").inputValue(), "backups")
        })
        const member = yield* opened(one.member, `${one.slug}/webhooks`)
        yield* Effect.promise(async () => {
          await said(member.page, "Seeing webhooks takes the role admin")
          await member.page.getByRole("link", { name: "Keys and agents" }).click()
          await said(member.page, "Seeing API keys takes the role admin")
          await member.page.getByRole("link", { name: "Members" }).click()
          await said(member.page, "Inviting takes the role admin")
        })
        assert.deepStrictEqual([wrong, member.wrong], [[], []])
      })
  )
})
