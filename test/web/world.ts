/** A browser on a control plane that has something to show, and a way to cut the two apart. */
import * as fs from "node:fs"
import * as net from "node:net"
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { BrowserContextOptions, Page } from "playwright-core"
import { parse } from "yaml"
import { Plane } from "#test/setup/control-plane.ts"
import { inaccessible, type OpenBrowser, window } from "#test/setup/pages.ts"

export const manifestOf = (org: string, more = "") => `version: 1
organization: ${org}
projects:
  - name: Shop
    slug: shop
    runtimeClass: always-on
    queues: [{ name: jobs, deadLetterQueue: dead }, { name: dead, deadLetterQueue: null }]
    crons: [{ name: nightly, schedule: "0 3 * * *", environment: production, target: { kind: http, path: /run } }]
    env: { TOKEN: secret }
${more}`
export const later = `  - { name: Later, slug: later, runtimeClass: always-on }
`

export const data = `  - name: Data
    slug: data
    runtimeClass: always-on
    caches: [{ name: sessions, region: local }]
    alerts: [{ name: Slow queries, severity: warning, scope: {}, condition: { signal: storage.capacity, durationSeconds: 60 } }]
`

/** What the page says is wrong with it. That it ends requests which nobody waits for any more is not. */
const complaints = (page: Page): Array<string> => {
  const found: Array<string> = []
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().includes("Failed to load resource"))
      found.push(message.text())
  })
  page.on("pageerror", (error) => void found.push(error.message))
  page.on("requestfailed", (request) => {
    const why = request.failure()?.errorText ?? ""
    if (!/ERR_(ABORTED|NETWORK_CHANGED)/.test(why)) found.push(`${request.url()} ${why}`)
  })
  return found
}

/** A page of somebody who is signed in by this session, at this path of the dashboard. `wrong` is what it complained about. */
export const opened = Effect.fn(function* (
  session: string,
  path: string,
  options: BrowserContextOptions & { readonly baseURL?: string } = {}
) {
  const { url } = yield* Plane
  const context = yield* window(options)
  context.setDefaultTimeout(60_000)
  const origin = options.baseURL ?? url
  return yield* Effect.promise(async () => {
    await context.addCookies([{ name: "svc_session", value: session, url: origin }])
    // Nothing is fetched from anywhere else.
    const elsewhere: Array<string> = []
    await context.route(
      (target) => target.origin !== origin,
      (route) => {
        elsewhere.push(route.request().url())
        return route.abort()
      }
    )
    const page = await context.newPage()
    const wrong = complaints(page)
    await page.goto(`/app/${path}`)
    return { context, page, wrong, elsewhere }
  })
})

/** Declares a test of the file's world, for files that share one. */
export type Test = (
  name: string,
  body: () => Effect.Effect<void, unknown, Plane | OpenBrowser | Scope.Scope>
) => void

/** For people to look at, where `SCREENSHOTS` is set; git ignores the folder. */
export const screenshot = async (page: Page, name: string): Promise<void> => {
  if (process.env["SCREENSHOTS"] === undefined) return
  fs.mkdirSync("screenshots", { recursive: true })
  await page.screenshot({ path: `screenshots/${name}.png` })
}

/** It takes a second of the processor for each page: every time of these alone, of all where `SCREENSHOTS` is set. */
const alwaysLookedOver: ReadonlySet<string> = new Set(["database", "webhooks"])

const otherSights = [
  [390, "light"],
  [1280, "dark"],
  [1920, "light"],
  [1920, "dark"]
] as const

/** Nothing serious, and no wider than the screen: on a phone in the dark, and on a desk by daylight. */
export const lookOver = async (page: Page, name: string): Promise<void> => {
  const forPeople = process.env["SCREENSHOTS"] !== undefined
  if (!forPeople && !alwaysLookedOver.has(name)) return
  for (const [width, colorScheme] of [
    ...(forPeople ? otherSights : []),
    [390, "dark"],
    [1280, "light"]
  ] as const) {
    await page.emulateMedia({ colorScheme })
    await page.setViewportSize({ width, height: 860 })
    await screenshot(page, `${name}-${colorScheme}-${width}`)
    assert.isFalse(
      await page.evaluate("document.documentElement.scrollWidth > innerWidth"),
      `${name} ${width}`
    )
  }
  assert.deepStrictEqual(await inaccessible(page), [], name)
}

export const fromMenu = async (page: Page, of: string | RegExp, action: string): Promise<void> => {
  await page.getByRole("button", { name: of }).first().click()
  await page.getByRole("menuitem", { name: action }).click()
}
export const inDialog = (page: Page, action: string) =>
  page.getByRole("alertdialog").getByRole("button", { name: action, exact: true }).click()
export const closed = (page: Page) => page.getByRole("alertdialog").waitFor({ state: "detached" })
export const said = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor()

export const editor = (page: Page) => page.getByLabel("Manifest", { exact: true })

/** Pastes the text in place of all that is in the editor of manifests, as people do with more than a line. */
export const pasted = async (page: Page, text: string): Promise<void> => {
  await editor(page).focus()
  await page.keyboard.press("Control+a")
  await page.evaluate(`(() => {
    const clipboardData = new DataTransfer()
    clipboardData.setData("text/plain", ${JSON.stringify(text)})
    document.activeElement.shadowRoot.activeElement.dispatchEvent(
      new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true, composed: true })
    )
  })()`)
}

/** What is in it, as far as it fits on the screen, or the example that stands in an empty one. */
export const inEditor = async (page: Page): Promise<string> =>
  (await editor(page).locator(".cm-line").allTextContents()).join("\n")

/** Applies {@link manifestOf} the organization. */
export const applied = Effect.fn(function* (org: string, token?: string, more?: string) {
  const { call } = yield* Plane
  const answer = yield* call("POST", `/v1/orgs/${org}/manifest/apply`, {
    body: { manifest: parse(manifestOf(org, more)) },
    ...(token === undefined ? {} : { token })
  })
  assert.strictEqual(answer.status, 202, answer.text)
})

/** Listens on a port of its own and passes everything on, until it is told to act like a server that was killed. */
export const cuttable = Effect.gen(function* () {
  const { url } = yield* Plane
  const open = new Set<net.Socket>()
  let dead = false
  const server = net.createServer((from) => {
    if (dead) return void from.destroy()
    const to = net.connect(Number(new URL(url).port), "127.0.0.1")
    for (const [one, other] of [
      [from, to],
      [to, from]
    ] as const) {
      open.add(one)
      one.pipe(other)
      one.on("error", () => other.destroy())
      one.on("close", () => {
        open.delete(one)
        other.destroy()
      })
    }
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))),
    () => Effect.sync(() => server.close())
  )
  const address = server.address()
  if (address === null || typeof address === "string") return yield* Effect.die("no port")
  return {
    origin: `http://127.0.0.1:${address.port}`,
    kill: Effect.sync(() => {
      dead = true
      for (const socket of open) socket.destroy()
    }),
    revive: Effect.sync(() => {
      dead = false
    })
  }
})
