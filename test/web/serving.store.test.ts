/** How the dashboard is served. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { assert, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { readBuilt } from "#src/dashboard/files.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { buildDashboard } from "../../web/build.ts"

await buildDashboard()

layer(testPlane(), { excludeTestServices: true })("the dashboard", (it) => {
  const get = Effect.fnUntraced(function* (target: string, headers: Record<string, string> = {}) {
    const { url } = yield* Plane
    return yield* Effect.promise(async () => {
      const response = await fetch(`${url}${target}`, { headers, redirect: "manual" })
      return { status: response.status, headers: response.headers, text: await response.text() }
    })
  })

  it.effect("is one page for every address below its own, asked for each time, without inline scripts", () =>
    Effect.gen(function* () {
      const moved = yield* get("/app")
      assert.deepStrictEqual(
        [moved.status, new URL(moved.headers.get("location")!, "http://x").pathname],
        [308, "/app/"]
      )
      const page = yield* get("/app/")
      const deep = yield* get("/app/main/resources/x?kind=Cache")
      assert.deepStrictEqual([page.status, deep.status], [200, 200])
      assert.strictEqual(deep.text, page.text)
      assert.strictEqual(page.headers.get("cache-control"), "no-cache")
      const policy = page.headers.get("content-security-policy") ?? ""
      for (const rule of [
        "script-src 'self';",
        "style-src 'self';",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'"
      ])
        assert.include(policy, rule)
      assert.notInclude(policy, "unsafe")
      assert.notMatch(page.text, /<script(?![^>]* src=)|<style|style=/)
      const again = yield* get("/app/", { "if-none-match": page.headers.get("etag")! })
      assert.strictEqual(again.status, 304)
    })
  )

  it.effect("has assets that are kept for ever, compressed when it was built, and no others", () =>
    Effect.gen(function* () {
      const page = yield* get("/app/")
      const [, script] = /src="\.\/(assets\/[^"]+\.js)"/.exec(page.text) ?? []
      assert.isDefined(script)
      const sizes = new Map<string, number>()
      for (const encoding of ["br", "gzip", "identity"]) {
        const asset = yield* get(`/app/${script}`, { "accept-encoding": encoding })
        assert.strictEqual(asset.status, 200)
        assert.strictEqual(asset.headers.get("content-encoding"), encoding === "identity" ? null : encoding)
        assert.include(asset.headers.get("cache-control"), "immutable")
        sizes.set(encoding, Number(asset.headers.get("content-length")))
      }
      assert.isBelow(sizes.get("br")!, sizes.get("identity")! / 2)
      assert.isBelow(sizes.get("gzip")!, sizes.get("identity")! / 2)
      for (const none of ["assets/none.js", "assets/", "assets/..%2Findex.html"])
        assert.strictEqual((yield* get(`/app/${none}`)).status, 404, none)
      assert.notInclude((yield* get("/app/inputs.json")).text, "sha")
    })
  )

  it.effect("is opened by a link that signs the owner in once", () =>
    Effect.gen(function* () {
      const { signInUrl, url } = yield* Plane
      const token = new URL(signInUrl).searchParams.get("token")!
      const use = Effect.promise(() =>
        fetch(`${url}/sign-in/link`, {
          method: "POST",
          redirect: "manual",
          headers: { origin: url, "sec-fetch-site": "same-origin" },
          body: new URLSearchParams({ token })
        })
      )
      const first = yield* use
      assert.deepStrictEqual([first.status, first.headers.get("location")], [303, "/app/"])
      assert.match(first.headers.get("set-cookie") ?? "", /^svc_session=svcs_/)
      assert.strictEqual((yield* use).status, 410)
    })
  )
})

it("below a path of a proxy the page's addresses begin there; without a build there is none", async () => {
  const built = await readBuilt("/cloud/app/")
  assert.include(Buffer.from(built!.page).toString(), '<base href="/cloud/app/"')
  const empty = fs.mkdtempSync(path.join(os.tmpdir(), "svc-web-"))
  assert.isUndefined(await readBuilt("/app/", empty))
  fs.rmSync(empty, { recursive: true })
})

it("the first screen is less than 250 kB as gzip, with all that it imports", () => {
  const read = (name: string) => fs.readFileSync(path.join("web/dist", name), "utf8")
  const seen = new Set<string>()
  const add = (name: string) => {
    if (seen.has(name)) return
    seen.add(name)
    if (!name.endsWith(".js")) return
    for (const [, inner] of read(`assets/${name}`).matchAll(/(?:from|import)\s*"\.\/([^"]+\.js)"/g))
      add(inner!)
  }
  for (const [, name] of read("index.html").matchAll(/assets\/([^"]+)/g)) add(name!)
  const sizes = [...seen].map((name) => fs.statSync(path.join("web/dist/assets", `${name}.gz`)).size)
  assert.isAbove(sizes.length, 1)
  assert.isBelow(
    sizes.reduce((sum, size) => sum + size, 0),
    250_000
  )
})
