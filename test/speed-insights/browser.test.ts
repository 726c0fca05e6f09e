/** Pages in a real browser measure themselves, and the report says what they saw. */
import { spawn } from "node:child_process"
import * as fs from "node:fs"
import { rm } from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Page } from "playwright-core"
import { navigations } from "#src/speed-insights/batch.ts"
import { wholeBrowserPath } from "#test/setup/browser.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { testApp } from "#test/setup/edge.ts"
import { canLook, OpenBrowser, window } from "#test/setup/pages.ts"
import { eventually } from "#test/setup/wait.ts"
import { measuredProject, query, type Site } from "./world.ts"

const picture = `<svg xmlns="http://www.w3.org/2000/svg" width="600" height="400"><rect width="600" height="400"/></svg>`

const pageOf = (client: string, attributes: string) => `<!doctype html><title>Shop</title>
  <script defer src="${client}" ${attributes}></script>
  <h1>Shop</h1><img src="/picture.svg" width="600" height="400"><button>Buy</button><p></p>
  <script>
    document.querySelector("button").onclick = () => {
      const end = performance.now() + 60
      while (performance.now() < end);
      history.pushState({}, "", "/thanks")
      document.querySelector("p").innerHTML = "<h2 style='font-size:80px'>Thank you, it is on its way</h2>"
    }
    document.addEventListener("move", () => {
      const above = document.createElement("div")
      above.style.height = "300px"
      document.body.prepend(above)
    })
  </script>`

interface Sent {
  readonly metric: string
  readonly value: number
  readonly route: string
  readonly navigationType: string
  readonly eventId: string
}

/** Before a page's own scripts: notes what it sends. */
const noting = `
  window.sent = []
  const send = window.fetch
  window.fetch = (to, options) => {
    if (String(to).includes("/v1/speed-insights/")) window.sent.push(...JSON.parse(options.body).events)
    return send(to, options)
  }`
const sentBy = (page: Page): Promise<ReadonlyArray<Sent>> => page.evaluate("window.sent")

/** As when another tab comes to the front. */
const hide = `
  Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true })
  document.dispatchEvent(new Event("visibilitychange", { bubbles: true }))`

/** A page of an app that says where it is, and what is in its script element. */
const shop = (site: Site, attributes = "") =>
  Effect.gen(function* () {
    const { call, url } = yield* Plane
    const { origin } = yield* testApp((request, response) => {
      const isPicture = request.url === "/picture.svg"
      response.writeHead(200, { "content-type": isPicture ? "image/svg+xml" : "text/html" })
      const data = `data-project="${site.projectRef}" ${attributes}`
      response.end(isPicture ? picture : pageOf(`${url}/v1/speed-insights/client.js`, data))
    })
    const environment = `/v1/orgs/${site.org}/projects/${site.project}/environments/production`
    yield* call("PATCH", environment, { token: site.token, body: { origin } })
    return origin
  })

/** Whoever drives a browser keeps it from loading pages ahead: these go on by themselves, when something was painted. */
const onceSeen = (go: string) => `requestAnimationFrame(() => setTimeout(() => { ${go} }, 500))`
const selfDriven: Readonly<Record<string, string>> = {
  "/ahead": `
    <script type="speculationrules">{ "prerender": [{ "urls": ["/shown"], "eagerness": "immediate" }] }</script>
    <script>onload = () => fetch("/go").then(() => { location.href = "/shown" })</script>`,
  "/shown": `<script>
    if (document.prerendering) fetch("/note/ahead")
    document.addEventListener("prerenderingchange", () => {
      fetch("/note/shown")
      ${onceSeen('location.href = "/other"')}
    })
    addEventListener("pageshow", ({ persisted }) => {
      if (!persisted) return
      fetch("/note/restored")
      ${onceSeen('location.href = "/end"')}
    })
  </script>`,
  "/other": `<script>onload = () => { ${onceSeen("history.back()")} }</script>`
}

/** A browser that nobody drives. */
const browserAlone = (address: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const profile = fs.mkdtempSync(path.join(os.tmpdir(), "browser-"))
      const child = spawn(
        wholeBrowserPath() ?? "",
        [
          "--headless=new",
          "--no-sandbox",
          "--disable-gpu",
          "--no-first-run",
          `--user-data-dir=${profile}`,
          address
        ],
        { stdio: "ignore", detached: true }
      )
      return { child, profile }
    }),
    ({ child, profile }) =>
      Effect.promise(async () => {
        const ended = new Promise((resolve) => child.once("exit", resolve))
        if (child.exitCode === null && child.pid !== undefined) {
          // All of its processes.
          process.kill(-child.pid, "SIGKILL")
          await ended
        }
        await rm(profile, { recursive: true, force: true, maxRetries: 10 })
      })
  )

const opened = Effect.gen(function* () {
  const context = yield* window()
  return yield* Effect.promise(() => context.newPage())
})

const painted = (page: Page) =>
  page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0)

const samples = (site: Site) => Effect.map(query(site), ({ body }): number => body.summary.samples)

layer(Layer.merge(testPlane(), OpenBrowser.layer), { excludeTestServices: true, timeout: "4 minutes" })(
  "a page in a browser",
  (it) => {
    const test = canLook ? it.effect : it.effect.skip

    test("has its numbers in the report: paint, input, shifts, and a route that it shows itself", () =>
      Effect.gen(function* () {
        const site = yield* measuredProject()
        const origin = yield* shop(site)
        const page = yield* opened
        const asked: Array<string> = []
        page.on("request", (request) => {
          if (request.url().includes("/collect/"))
            asked.push(`${request.method()} ${request.headers()["cookie"] ?? "no cookie"}`)
        })
        const sent = yield* Effect.promise(async () => {
          await page.addInitScript(noting)
          await page.goto(`${origin}/orders/12345?token=secret#part`)
          await painted(page)
          await page.evaluate("document.dispatchEvent(new Event('move'))")
          await page.click("button")
          await page.waitForSelector("h2")
          // The input and the shift are told of by the frame after them.
          await page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 500)))")
          await page.evaluate(hide)
          return sentBy(page)
        })
        yield* eventually(
          "what was sent is in the report",
          Effect.map(samples(site), (count) => count > 0 && count === sent.length)
        )
        const metricsSent = new Set(sent.map(({ metric }) => metric))
        for (const metric of ["FCP", "LCP", "INP", "TTFB", "CLS"]) assert.include([...metricsSent], metric)
        assert.include(
          sent.map(({ route }) => route),
          "/orders/:id"
        )
        for (const { route } of sent) assert.include(["/orders/:id", "/thanks"], route)
        assert.strictEqual(new Set(sent.map(({ eventId }) => eventId)).size, sent.length)
        // No preflight, and no cookie.
        assert.deepStrictEqual([...new Set(asked)], ["POST no cookie"])

        const { body } = yield* query(site)
        const landing = body.routes.find(({ route }: { route: string }) => route === "/orders/:id")
        for (const { metric, value, route } of sent) {
          if (route !== "/orders/:id") continue
          const vital = landing.vitals.find((one: { metric: string }) => one.metric === metric)
          if (vital.samples !== 1) continue
          assert.isAtMost(Math.abs(vital.p75 - value), value * 0.011 + 1e-5, metric)
        }
        const inp = sent.find(({ metric }) => metric === "INP")
        assert.isAtLeast(inp?.value ?? 0, 50)
      }))

    test("that is reloaded, or left and come back to, says so", () =>
      Effect.gen(function* () {
        const { sql } = yield* Plane
        const site = yield* measuredProject()
        const origin = yield* shop(site)
        const page = yield* opened
        yield* Effect.promise(async () => {
          await page.goto(`${origin}/first`)
          await painted(page)
          await page.reload()
          await painted(page)
          await page.goto(`${origin}/second`)
          await painted(page)
          await page.goBack()
          await painted(page)
          await page.goto("about:blank")
        })
        const kinds = sql(`
          select distinct n as navigation from speed_batch b, unnest(b.navigation) as n
          join speed_project p on true where p.project_ref = '${site.projectRef}' and b.project_uid = p.project_uid
          order by 1`)
        const names = Effect.map(kinds, (rows) =>
          rows.map(({ navigation }) => navigations[Number(navigation)])
        )
        yield* eventually(
          "each kind of navigation was told",
          Effect.map(names, (told) =>
            ["navigate", "reload", "back-forward"].every((kind) => told.some((one) => one === kind))
          )
        )
      }))

    const alone = wholeBrowserPath() === undefined ? it.effect.skip : test
    alone("that was really loaded ahead, or comes back from the back/forward cache, says so", () =>
      Effect.gen(function* () {
        const { sql, url, call } = yield* Plane
        const site = yield* measuredProject()
        const noted = new Set<string>()
        let loadedAhead: () => void = () => {}
        const isLoadedAhead = new Promise<void>((resolve) => {
          loadedAhead = resolve
        })
        const { origin } = yield* testApp((request, response) => {
          const path = request.url ?? ""
          if (path.startsWith("/note/")) {
            noted.add(path.slice("/note/".length))
            if (path === "/note/ahead") loadedAhead()
            response.end()
          } else if (path === "/go") void isLoadedAhead.then(() => response.end())
          else {
            response.writeHead(200, { "content-type": "text/html" })
            const client = `<script defer src="${url}/v1/speed-insights/client.js" data-project="${site.projectRef}"></script>`
            response.end(`<!doctype html><title>${path}</title><h1>${path}</h1>${selfDriven[path] ?? ""}
              ${path === "/shown" ? client : ""}`)
          }
        })
        yield* call("PATCH", `/v1/orgs/${site.org}/projects/${site.project}/environments/production`, {
          token: site.token,
          body: { origin }
        })
        yield* browserAlone(`${origin}/ahead`)
        const told = sql(`
          select distinct n as navigation from speed_batch b, unnest(b.navigation) as n
          join speed_project p on true where p.project_ref = '${site.projectRef}' and b.project_uid = p.project_uid
          order by 1`)
        const names = Effect.map(told, (rows) =>
          rows.map(({ navigation }) => navigations[Number(navigation)])
        )
        yield* eventually(
          "both were told",
          Effect.map(names, (all) => ({ all, noted: [...noted] })),
          ({ all }) => ["prerender", "back-forward"].every((kind) => all.some((one) => one === kind))
        )
        assert.sameMembers([...noted], ["ahead", "shown", "restored"])
      })
    )

    test("of another site sends nothing that is kept, and none is sent of who does not want it", () =>
      Effect.gen(function* () {
        const { url } = yield* Plane
        const site = yield* measuredProject()
        const quiet = yield* shop(site, "data-respect-do-not-track")
        const { origin: other } = yield* testApp((_, response) => {
          response.writeHead(200, { "content-type": "text/html" })
          response.end(pageOf(`${url}/v1/speed-insights/client.js`, `data-project="${site.projectRef}"`))
        })
        const context = yield* window()
        yield* Effect.promise(() =>
          context.addInitScript(() =>
            Object.defineProperty(Navigator.prototype, "doNotTrack", { get: () => "1" })
          )
        )
        const page = yield* Effect.promise(() => context.newPage())
        const sentAt = (address: string) =>
          Effect.promise(async () => {
            await page.goto(address)
            await painted(page)
            await page.evaluate(hide)
            return sentBy(page)
          })
        yield* Effect.promise(() => page.addInitScript(noting))
        assert.deepStrictEqual(yield* sentAt(quiet), [])
        const refused = page.waitForResponse((response) => response.url().includes("/collect/"))
        assert.isAbove((yield* sentAt(other)).length, 0)
        assert.strictEqual((yield* Effect.promise(() => refused)).status(), 403)
        assert.strictEqual(yield* samples(site), 0)
      }))
  }
)
