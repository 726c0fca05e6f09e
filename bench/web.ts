/**
 * The dashboard in a real browser, by Chromium's own figures: what the first screen weighs and when it is painted, and
 * whether a list of ten thousand resources scrolls and stays usable while a thousand of them change each second.
 */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import { type CDPSession, chromium, type Page } from "playwright-core"
import postgres from "postgres"
import { AppConfig } from "#src/config.ts"
import { controlPlane, FirstStart } from "#src/main.ts"
import { browserPath } from "#test/setup/browser.ts"
import { freePort, managedPorts } from "#test/setup/postgres.ts"
import { sweep } from "#test/setup/processes.ts"
import { buildDashboard } from "../web/build.ts"
import { type Figure, median } from "./figures.ts"

const resources = 10_000
const changesPerSecond = 1_000
const seconds = 5
const rounds = 5

export const web = async (url: string): Promise<ReadonlyArray<Figure>> => {
  const executablePath = browserPath()
  if (executablePath === undefined) {
    console.log("  skipped: apt-get install -y chromium-headless-shell")
    return []
  }
  await buildDashboard()
  return Effect.runPromise(Effect.scoped(measured(url, executablePath)))
}

/** Resources of one environment that are ready, in the organization of the first start. */
const fill = (sql: postgres.Sql) => sql`
  with org as (select id from organization where slug = 'main'),
  project as (
    insert into resource (org_id, uid, kind, name, spec, status, phase, observed_generation, settled, managed_by)
    select id, gen_random_uuid(), 'Project', 'shop', '{"name": "Shop", "runtimeClass": "always-on"}', '{}', 'ready', 1, true, 'api'
    from org returning org_id, uid
  )
  insert into resource (org_id, uid, kind, project_id, environment, name, parent_uid, spec, status, phase,
    observed_generation, settled, managed_by, conditions)
  select org_id, gen_random_uuid(), 'Queue', uid, 'production', 'queue-' || lpad(i::text, 5, '0'), uid,
    '{"retentionSeconds": 345600, "deliveryDelaySeconds": 0, "deadLetterQueue": null, "paused": false}', '{}', 'ready', 1, true, 'api',
    '[{"type": "Ready", "status": "true", "reason": "Converged", "message": "Ready", "lastTransitionAt": "2026-01-01T00:00:00.000Z", "observedGeneration": 1}]'
  from project, generate_series(1, ${resources}::int) i`

/** Some of them change, as a reconciler would record it. */
const change = (sql: postgres.Sql, count: number) => sql`
  with changed as (
    update resource set revision = nextval('resource_revision'), txid = pg_current_xact_id(), updated_at = now(),
      phase = case phase when 'ready' then 'updating' else 'ready' end
    where uid in (select uid from resource where kind = 'Queue' order by random() limit ${count})
    returning org_id
  )
  select pg_notify('svc_change', org_id::text) from changed group by org_id`

const measured = Effect.fnUntraced(function* (url: string, executablePath: string) {
  const dataDir = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-bench-"))),
    (folder) => Effect.promise(() => sweep(folder))
  )
  const [port, metricsPort] = yield* Effect.promise(() => Promise.all([freePort(), freePort()]))
  const origin = `http://127.0.0.1:${port}`
  const config = AppConfig.layerWith(
    {
      dataDir,
      databaseUrl: Redacted.make(url),
      managedPorts,
      port,
      metricsPort,
      publicUrl: origin,
      rateLimit: 100_000,
      roles: new Set(["api"])
    },
    {}
  )
  const context = yield* Layer.build(
    controlPlane.pipe(Layer.provide(config), Layer.provide(Logger.layer([])))
  )
  const made = Context.get(context, FirstStart).made
  if (made === undefined) return yield* Effect.die("the store was not empty")
  const sql = yield* Effect.acquireRelease(
    Effect.sync(() => postgres(url, { max: 1, onnotice: () => {} })),
    (open) => Effect.promise(() => open.end())
  )
  yield* Effect.promise(() => fill(sql))
  const browser = yield* Effect.acquireRelease(
    Effect.promise(() => chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] })),
    (open) => Effect.promise(() => open.close())
  )
  const opened = async (target: string) => {
    const browsing = await browser.newContext({ viewport: { width: 1280, height: 860 } })
    await browsing.addCookies([{ name: "svc_session", value: Redacted.value(made.session), url: origin }])
    const page = await browsing.newPage()
    const chrome = await browsing.newCDPSession(page)
    await page.addInitScript(watch)
    await chrome.send("Network.enable")
    await chrome.send("Performance.enable")
    let bytes = 0
    chrome.on("Network.loadingFinished", ({ encodedDataLength }) => {
      bytes += encodedDataLength
    })
    await page.goto(`${origin}/app/${target}`)
    return { page, chrome, close: () => browsing.close(), bytes: () => bytes }
  }

  return yield* Effect.promise(async (): Promise<ReadonlyArray<Figure>> => {
    const first = []
    for (let round = 0; round < rounds; round++) {
      const { page, bytes, close } = await opened("main")
      await page.getByRole("link", { name: "shop", exact: true }).waitFor()
      first.push({ bytes: bytes(), paint: await number(page, "paint") })
      await close()
    }

    const { page, chrome } = await opened("main/resources")
    await page.getByText("queue-00001").waitFor()
    await page
      .getByRole("main")
      .getByText(String(resources + 1), { exact: true })
      .waitFor()
    const scrolled = await during(page, chrome, () => page.evaluate(scrollThrough))
    const burst = await during(page, chrome, async () => {
      for (const began = performance.now(); performance.now() - began < seconds * 1_000; ) {
        const next = performance.now() + 100
        await change(sql, changesPerSecond / 10)
        await new Promise((resolve) => setTimeout(resolve, Math.max(0, next - performance.now())))
      }
    })
    return [
      {
        name: "first screen over the wire",
        value: median(first.map(({ bytes }) => bytes)) / 1_000,
        unit: "kB",
        aim: "< 250"
      },
      {
        name: "largest contentful paint",
        value: median(first.map(({ paint }) => paint)),
        unit: "ms",
        aim: "< 1,000",
        note: `${Math.round(Math.min(...first.map(({ paint }) => paint)))} to ${Math.round(Math.max(...first.map(({ paint }) => paint)))}`
      },
      { name: `longest task, ${resources} rows scrolled`, value: scrolled.longest, unit: "ms", aim: "< 50" },
      { name: "main thread busy while scrolling", value: scrolled.busy * 100, unit: "%" },
      {
        name: `longest task, ${changesPerSecond} changes a second`,
        value: burst.longest,
        unit: "ms",
        aim: "< 100"
      },
      { name: "main thread busy with them", value: burst.busy * 100, unit: "%", aim: "< 50" }
    ]
  })
})

/** Runs in the page before anything of its own. Tasks under 50 ms are not told by Chromium: they count as 0. */
const watch = `
  window.paint = 0
  window.longest = 0
  new PerformanceObserver((list) => { for (const one of list.getEntries()) window.paint = one.startTime })
    .observe({ type: "largest-contentful-paint", buffered: true })
  new PerformanceObserver((list) => { for (const one of list.getEntries()) window.longest = Math.max(window.longest, one.duration) })
    .observe({ type: "longtask", buffered: true })`

/** A screen a frame, down to the end. */
const scrollThrough = `new Promise((resolve) => {
  const step = () => {
    const box = [...document.querySelectorAll("*")].find((one) => one.scrollHeight > one.clientHeight + 1000 && getComputedStyle(one).overflowY !== "visible") ?? document.scrollingElement
    box.scrollBy(0, 800)
    if (box.scrollTop + box.clientHeight >= box.scrollHeight - 1) resolve()
    else requestAnimationFrame(step)
  }
  step()
})`

const number = async (page: Page, name: string): Promise<number> =>
  Number(await page.evaluate(`window.${name}`))

const taskSeconds = async (chrome: CDPSession): Promise<number> => {
  const { metrics } = await chrome.send("Performance.getMetrics")
  return metrics.find(({ name }) => name === "TaskDuration")?.value ?? 0
}

/** The longest task of the page's main thread meanwhile, and the share of the time that it was busy. */
const during = async (page: Page, chrome: CDPSession, act: () => Promise<unknown>) => {
  await page.evaluate("window.longest = 0")
  const [before, began] = [await taskSeconds(chrome), performance.now()]
  await act()
  const busy = ((await taskSeconds(chrome)) - before) / ((performance.now() - began) / 1_000)
  return { longest: await number(page, "longest"), busy }
}
