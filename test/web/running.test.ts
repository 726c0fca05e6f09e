/** Pages of what runs in containers, in a browser: commands that run once, apps, their versions and what they print. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import {
  answerOf,
  appPlane,
  deploy,
  makeShop,
  over,
  readApp,
  readDeployment,
  ready,
  server
} from "#test/apps/world.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Containers } from "#test/executions/world.ts"
import { sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { canLook, OpenBrowser } from "#test/setup/pages.ts"
import { eventually } from "#test/setup/wait.ts"
import { buildDashboard } from "../../web/build.ts"
import { closed, fromMenu, inDialog, lookOver, opened, said } from "./world.ts"

await buildDashboard()

const world = Layer.merge(appPlane(), OpenBrowser.layer)

layer(world, { excludeTestServices: true, timeout: "3 minutes" })("the dashboard of what runs", (it) => {
  const test = canLook ? it.effect : it.effect.skip

  campaign(
    test,
    "dashboard-executions",
    "a command is run, its log followed in colours and searched; one that goes on is ended",
    { rounds: 0 },
    () =>
      Effect.gen(function* () {
        const { session, call } = yield* Plane
        const { openImage } = yield* Containers
        yield* makeShop("jobs")
        const { page, wrong } = yield* opened(session, "main/projects/jobs?show=executions")
        yield* Effect.promise(async () => {
          const asked = async (script: string) => {
            await page.getByRole("button", { name: "Run a command" }).click()
            await page.getByLabel("Image").fill(openImage)
            await page.getByLabel("Program and arguments").fill(sh(script).join("\n"))
            await inDialog(page, "Run it")
            await closed(page)
          }
          const log = page.getByRole("region", { name: "Log" })
          await asked(
            "busybox printf '\\033[31mred\\033[0m <b>one</b>\\nplain two\\n'; while [ ! -e /tmp/x ]; do busybox sleep 1; done"
          )
          await log.locator(".text-bad", { hasText: /^red$/ }).waitFor()
          await log.getByText("<b>one</b>").waitFor()
          await page.getByText(/2 lines, following/).waitFor()
          await page.getByLabel("Search the log").fill("TWO")
          await page.getByText("1 of 2 lines").waitFor()
          assert.strictEqual(await log.getByText("red").count(), 0)
          await page.getByLabel("Search the log").fill("")
          await lookOver(page, "execution")
          await page.getByRole("button", { name: "End it" }).click()
          await page.getByRole("alertdialog").getByText("it cannot go on").waitFor()
          await inDialog(page, "End it")
          await closed(page)
          await said(page, "cancelled")
          await page.getByRole("button", { name: "End it" }).waitFor({ state: "detached" })

          await page.goto("/app/main/projects/jobs?show=executions")
          await page.getByRole("row", { name: /cancelled/ }).waitFor()
          await asked("exit 3")
          await said(page, "failed")
          await page.goto("/app/main/projects/jobs?show=executions")
          await page.getByRole("row", { name: /failed, 3/ }).waitFor()
          await asked("busybox sleep 600")
          await page.goto("/app/main/projects/jobs?show=executions")
          await fromMenu(page, /^Actions: .*sleep 600/, "End it")
          await inDialog(page, "End it")
          await closed(page)
        })
        yield* eventually(
          "all have ended",
          call("GET", "/v1/orgs/main/projects/jobs/executions"),
          ({ body }) =>
            body.length === 3 &&
            body.every((one: { readonly finishedAt: unknown }) => one.finishedAt !== null)
        )
        assert.deepStrictEqual(wrong, [])
      })
  )

  campaign(
    test,
    "dashboard-apps",
    "an app shows its versions, instances and prints; it is restarted, rolled back, promoted, and a version ended",
    { rounds: 0 },
    () =>
      Effect.gen(function* () {
        const { session, call } = yield* Plane
        const { path, host } = yield* makeShop("store")
        const first = yield* deploy(path, server("one"), { message: "First <img src=x onerror=alert(1)>" })
        yield* ready(path, first)
        const second = yield* deploy(path, server("two"), { message: "Second" })
        yield* ready(path, second)
        const listed = yield* call("GET", "/v1/orgs/main/resources?limit=100&kind=App")
        const uid: string = listed.body.items.find(
          (one: { readonly project: string }) => one.project === "store"
        ).uid
        const { page, wrong } = yield* opened(session, `main/resources/${uid}`)
        const versions = page.getByRole("row", { name: /answers/ })
        yield* Effect.promise(async () => {
          await versions.getByText("Second").waitFor()
          await page.getByText("First <img src=x onerror=alert(1)>").waitFor()
          await page.getByText(/serving two on/).waitFor()
          await lookOver(page, "app")
          await page.getByRole("button", { name: "Restart" }).click()
          await inDialog(page, "Restart now")
          await closed(page)
          await page.getByRole("button", { name: "Roll back" }).click()
          await page.getByRole("alertdialog").getByText("Data and variables stay").waitFor()
          await inDialog(page, "Roll back now")
          await closed(page)
          await versions.getByText("First").waitFor()
        })
        yield* eventually("the first answers again", answerOf(host), (text) => text === "200 one")

        // It never listens, so it is tried until somebody ends it.
        const stuck = yield* deploy(path, sh("echo thinking; busybox sleep 600"), { message: "Third" })
        yield* eventually(
          "it is being started",
          readDeployment(path, stuck),
          ({ state }) => state === "starting"
        )
        yield* Effect.promise(async () => {
          await page.goto(`/app/main/resources/${stuck}`)
          await said(page, "starting")
          await page.getByRole("region", { name: "Log" }).getByText(/./).first().waitFor()
          await lookOver(page, "deployment")
          await page.getByRole("button", { name: "End it" }).click()
          await page.getByRole("alertdialog").getByText("It never takes requests").waitFor()
          await inDialog(page, "End the deployment")
          await closed(page)
          await said(page, "cancelled")
        })
        assert.strictEqual((yield* over(path, stuck)).state, "cancelled")
        yield* Effect.promise(async () => {
          await page.goto(`/app/main/resources/${second}`)
          await page.getByRole("button", { name: "Promote" }).click()
          await inDialog(page, "Promote it")
          await closed(page)
        })
        yield* eventually("the second answers", readApp(path), ({ deploymentId }) => deploymentId === second)
        assert.deepStrictEqual(wrong, [])
      })
  )
})
