/** `examples/app` as a newcomer brings it up: its manifest, its folder, and what its page says then. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Round } from "#test/campaigns/campaign.ts"
import { type Answer, Plane } from "#test/setup/control-plane.ts"
import { TestEdge } from "#test/setup/edge.ts"
import { eventually } from "#test/setup/wait.ts"
import { exampleFolder } from "./example-folder.ts"
import { buildPlane, nothingIsLeft, userWith } from "./world.ts"

export const exampleApp = (_: Round) =>
  Effect.gen(function* () {
    const { call } = yield* Plane
    const { request } = yield* TestEdge
    const user = yield* userWith({})
    fs.cpSync(exampleFolder, path.join(user.cwd, "examples/app"), { recursive: true })
    const svc = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
      const { code, stdout, stderr } = yield* user.svc(args)
      assert.strictEqual(code, 0, `${args.join(" ")}: ${stdout}${stderr}`)
      return stdout + stderr
    })
    yield* svc("apply", "-f", "examples/app/svc.manifest.yaml", "--yes", "--timeout", "600")
    const deployed = yield* svc("deploy", "examples/app", "--timeout", "900")
    const environments = yield* call("GET", "/v1/orgs/main/projects/example/environments")
    const { address } = environments.body.find(({ slug }: Answer["body"]) => slug === "production")
    assert.include(deployed, new URL(address).host)
    const host = new URL(address).hostname
    const status = Effect.map(request(host, "/status.json"), ({ status: code, text }) =>
      code === 200 ? JSON.parse(text) : { code, text }
    )
    yield* eventually("database and cache answer", status, ({ database, cache }) => database?.ok && cache?.ok)
    const page = yield* request(host, "/", { headers: { accept: "text/html" } })
    assert.include(page.text, "<b>1</b> visits")

    yield* svc("queues", "publish", "example", "greetings", '{"from":"<b>me</b>"}')
    yield* svc("crons", "trigger", "example", "tick")
    const all = yield* eventually(
      "queue and cron job came",
      status,
      ({ queue, cron }) => queue?.last && cron?.last
    )
    assert.deepStrictEqual(all.queue.last.body, { from: "<b>me</b>" })
    assert.notInclude((yield* request(host, "/")).text, "<b>me</b>")
    const forged = yield* request(host, "/jobs/tick", { method: "POST", body: "{}" })
    assert.strictEqual(forged.status, 401, forged.text)

    // A change of one file is sent without the others, and takes the place of the former version.
    const served = path.join(user.cwd, "examples/app/page.js")
    fs.writeFileSync(served, fs.readFileSync(served, "utf8").replace("It runs.", "It runs on."))
    yield* svc("deploy", "examples/app", "--timeout", "900")
    assert.include((yield* request(host, "/")).text, "It runs on.")
    yield* nothingIsLeft
    if (process.env["KEEP_PAGE"] !== undefined)
      fs.writeFileSync(
        process.env["KEEP_PAGE"],
        (yield* request(host, "/", { headers: { accept: "text/html" } })).text
      )
  }).pipe(Effect.provide(buildPlane()))
