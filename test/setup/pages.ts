/** Pages in a real browser: what they complain about, what is inaccessible on them, and going about them by keyboard. */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import { createRequire } from "node:module"
import * as os from "node:os"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core"
import { browserPath } from "./browser.ts"
import { Plane } from "./control-plane.ts"

const executablePath = browserPath()
const usualArgs = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--disable-background-networking",
  "--disable-sync"
]
/** Without a browser there is nothing to look with. */
export const canLook = executablePath !== undefined
const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")

/** One browser for a file of tests. */
export class OpenBrowser extends Context.Service<OpenBrowser, { readonly browser: Browser | undefined }>()(
  "test/OpenBrowser"
) {
  static readonly layer = Layer.effect(
    OpenBrowser,
    executablePath === undefined
      ? Effect.succeed({ browser: undefined })
      : Effect.map(
          Effect.acquireRelease(
            Effect.promise(() =>
              chromium.launch({
                executablePath,
                timeout: 150_000,
                args: usualArgs
              })
            ),
            (open) => Effect.promise(() => open.close())
          ),
          (browser) => ({ browser })
        )
  )
}

/**
 * A browser whose user trusts one authority more, by the database of NSS in their home (NSS tools, `certutil`), and that
 * finds every name on this machine. Until the scope closes.
 */
export const trustingBrowser = Effect.fnUntraced(function* (rootPem: string) {
  const home = yield* Effect.acquireRelease(
    Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-home-"))),
    (dir) => Effect.sync(() => fs.rmSync(dir, { recursive: true, force: true, maxRetries: 10 }))
  )
  const database = path.join(home, ".pki", "nssdb")
  fs.mkdirSync(database, { recursive: true })
  const root = path.join(home, "root.pem")
  fs.writeFileSync(root, rootPem)
  const certutil = (...args: ReadonlyArray<string>) =>
    execFileSync("certutil", ["-d", `sql:${database}`, ...args], { stdio: "pipe" })
  certutil("-N", "--empty-password")
  certutil("-A", "-n", "authority", "-t", "C,,", "-i", root)
  const browser = yield* Effect.acquireRelease(
    Effect.promise(() =>
      chromium.launch({
        ...(executablePath === undefined ? {} : { executablePath }),
        timeout: 150_000,
        env: { ...definedOf(process.env), HOME: home },
        args: [...usualArgs, "--host-resolver-rules=MAP * 127.0.0.1"]
      })
    ),
    (open) => Effect.promise(() => open.close())
  )
  const page = yield* Effect.promise(() => browser.newPage())
  page.setDefaultTimeout(90_000)
  return page
})

const definedOf = (env: NodeJS.ProcessEnv): Record<string, string> =>
  Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]))
  )

/** A window of its own, with cookies of its own, on the control plane. */
export const window = Effect.fn(function* (options: BrowserContextOptions = {}) {
  const { url } = yield* Plane
  const { browser } = yield* OpenBrowser
  if (browser === undefined) return yield* Effect.die(new Error("there is no browser"))
  const context = yield* Effect.acquireRelease(
    Effect.promise(() => browser.newContext({ baseURL: url, ...options })),
    (open) => Effect.promise(() => open.close())
  )
  context.setDefaultTimeout(90_000)
  return context
})

/** What the page says is wrong with it: blocked by the policy, failed, or thrown. */
export const complaints = (page: Page): Array<string> => {
  const found: Array<string> = []
  page.on("console", (message) => {
    // A refused password is a 401, which the browser notes.
    if (message.type() === "error" && !message.text().includes("Failed to load resource"))
      found.push(message.text())
  })
  page.on("pageerror", (error) => void found.push(error.message))
  page.on("requestfailed", (request) => void found.push(request.url()))
  return found
}

interface Finding {
  readonly id: string
  readonly nodes: ReadonlyArray<{ readonly html: string }>
}
/** WCAG 2.2 A and AA, as far as a program can tell. Evaluated beside the page's own policy, which allows no script. */
export const inaccessible = async (page: Page): Promise<ReadonlyArray<string>> => {
  const violations: ReadonlyArray<Finding> = await page.evaluate(`(() => { ${axe}; return axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
  }).then((found) => found.passes.length === 0 ? [{ id: "nothing was looked at", nodes: [] }] : found.violations.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html }) => ({ html })) }))) })()`)
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`)
}

/** The name of the field, or the words of the button or link. */
const focused = (page: Page): Promise<string> =>
  page.evaluate(
    "((at) => ((at?.matches('button') ? '' : at?.name) || at?.textContent || '').trim())(document.activeElement)"
  )
/** The cursor waits in this field by itself, without a key or a click. */
export const startsIn = async (page: Page, name: string): Promise<void> => {
  for (let looks = 0; looks < 2_000; looks++) {
    if ((await focused(page)) === name) return
    await page.waitForTimeout(25)
  }
  throw new Error(`the cursor is in "${await focused(page)}" on ${page.url()}, not in ${name}`)
}
/** Presses Tab until the control with this name has the focus. */
export const tabTo = async (page: Page, name: string): Promise<void> => {
  for (let presses = 0; presses < 30; presses++) {
    if ((await focused(page)) === name) return
    await page.keyboard.press("Tab")
  }
  throw new Error(`${name} cannot be reached with the Tab key on ${page.url()}`)
}
