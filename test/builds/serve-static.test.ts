/** The server of static apps, as images run it. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { freePort } from "../setup/postgres.ts"
import { until } from "../setup/wait.ts"

const place = fs.mkdtempSync(path.join(os.tmpdir(), "svc-static-"))
let stop: () => Promise<void> = async () => {}
let address = ""

beforeAll(async () => {
  address = `http://127.0.0.1:${await freePort()}`
  const program = fileURLToPath(new URL("../../src/builds/serve-static.mjs", import.meta.url))
  const env = { ...process.env, PORT: new URL(address).port }
  const server = spawn(process.execPath, [program, place], { env, stdio: "ignore" })
  stop = async () => {
    server.kill("SIGKILL")
    await once(server, "exit")
  }
  await until("it answers", () =>
    fetch(address).then(
      () => true,
      () => false
    )
  )
})
afterAll(async () => {
  await stop()
  fs.rmSync(place, { recursive: true })
})

/** With the times that files have in images. */
const put = (name: string, content: string) => {
  fs.writeFileSync(path.join(place, name), content)
  fs.utimesSync(path.join(place, name), 0, 0)
}
const get = async (name: string, etag = "") => {
  const answer = await fetch(`${address}/${name}`, { headers: { "if-none-match": etag } })
  return { status: answer.status, etag: answer.headers.get("etag") ?? "", text: await answer.text(), answer }
}

describe("a static app", () => {
  it("sends what has changed, also if its size and its times have not", async () => {
    put("page.html", "v1")
    const first = await get("page.html")
    assert.strictEqual((await get("page.html", first.etag)).status, 304)
    put("page.html", "v2")
    const second = await get("page.html", first.etag)
    assert.deepStrictEqual([second.status, second.text], [200, "v2"])
    put("page.html", "v1")
    assert.strictEqual((await get("page.html")).etag, first.etag)
  })

  it("is kept by browsers only where names hold digests as bundlers write them", async () => {
    const isKept = async (name: string) => {
      put(name, "x")
      return (await get(name)).answer.headers.get("cache-control")?.includes("immutable")
    }
    for (const name of [
      "main.3f2a1b4c.js",
      "index-Bk3Qx9fA.css",
      "main.3f2a1b4c.js.map",
      "a-0d1e2f3a4b.woff2"
    ])
      assert.isTrue(await isKept(name), name)
    const others = [
      "my-holiday-2024.jpg",
      "index-20240101.js",
      "app-Version2.js",
      "photo-3f2a1b4c.jpg",
      "a-userMenu.js"
    ]
    for (const name of [...others, "page-3f2a1b4c.html", "jquery-3.7.1.min.js"])
      assert.isFalse(await isKept(name), name)
  })
})
