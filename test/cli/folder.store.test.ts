/** The `svc.yaml` of a folder: written by `svc init`, and by `svc link` for the commands in it. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { newUser } from "./svc.ts"

const apps = {
  server: {
    "package.json": JSON.stringify({ name: "shop", scripts: { start: "node server.js" } }),
    "server.js": ""
  },
  static: { "index.html": "<h1>Shop</h1>" }
} as const

layer(testPlane(), { excludeTestServices: true })("a folder", (it) => {
  it.effect("gets settings that say what its files say, once", () =>
    Effect.gen(function* () {
      const { url, apiKey } = yield* Plane
      const { svc, cwd, signIn } = yield* newUser
      signIn({ apiUrl: url, organization: "main", apiKey })
      for (const [name, files] of Object.entries(apps)) {
        const folder = path.join(cwd, name)
        fs.mkdirSync(folder)
        for (const [file, text] of Object.entries(files)) fs.writeFileSync(path.join(folder, file), text)
        const planned = svc(["deploy", "shop", name, "--plan", "--json"])
        const before = yield* planned
        assert.strictEqual(before.code, 0, before.stderr)
        const made = yield* svc(["init", name, "--json"])
        assert.strictEqual(made.code, 0, made.stderr)
        const file = path.join(folder, "svc.yaml")
        const told: unknown = JSON.parse(made.stdout)
        assert.deepStrictEqual(told, { file, plan: JSON.parse(before.stdout) })
        assert.strictEqual((yield* planned).stdout, before.stdout)

        fs.appendFileSync(file, "# mine\n")
        const again = yield* svc(["init", name])
        assert.strictEqual(again.code, 6)
        assert.match(again.stderr, /is there already/)
        assert.include(fs.readFileSync(file, "utf8"), "# mine")
        assert.strictEqual((yield* svc(["init", name, "--force"])).code, 0)
        assert.notInclude(fs.readFileSync(file, "utf8"), "# mine")
      }
      assert.include(fs.readFileSync(path.join(cwd, "server/svc.yaml"), "utf8"), "start: ")

      // What it was said to be before does not make what is found out.
      fs.writeFileSync(path.join(cwd, "server/svc.yaml"), "build:\n  start: something else\n")
      assert.strictEqual((yield* svc(["init", "server", "--force"])).code, 0)
      assert.notInclude(fs.readFileSync(path.join(cwd, "server/svc.yaml"), "utf8"), "something else")
      fs.mkdirSync(path.join(cwd, "empty"))
      assert.strictEqual((yield* svc(["init", "empty"])).code, 2)
      assert.isFalse(fs.existsSync(path.join(cwd, "empty/svc.yaml")))
    })
  )

  it.effect("knows its project once it is linked, and keeps what else its settings say", () =>
    Effect.gen(function* () {
      const { url, apiKey, call } = yield* Plane
      const { svc, cwd, signIn } = yield* newUser
      signIn({ apiUrl: url, organization: "main", apiKey })
      for (const slug of ["shop", "other"])
        yield* call("POST", "/v1/orgs/main/projects", { body: { name: slug, slug } })
      const unlinked = yield* svc(["deployments", "ls", "."])
      assert.strictEqual(unlinked.code, 2)
      assert.match(unlinked.stderr, /svc link/)

      const file = path.join(cwd, "svc.yaml")
      fs.writeFileSync(file, "# ours\nbuild:\n  start: node server.js\nproject: other\n")
      const linked = yield* svc(["link", "shop"])
      assert.strictEqual(linked.code, 0, linked.stderr)
      assert.match(linked.stderr, /project was other/)
      const text = fs.readFileSync(file, "utf8")
      for (const line of [
        "# ours",
        "  start: node server.js",
        "project: shop",
        "organization: main",
        `apiUrl: ${url}`
      ])
        assert.include(text.split("\n"), line)

      // Also from below, and of another folder's commands nothing is known here.
      const below = path.join(cwd, "below")
      fs.mkdirSync(below)
      const listed = yield* svc(["deployments", "ls", ".", "--json"], { cwd: below })
      assert.deepStrictEqual([listed.code, JSON.parse(listed.stdout)], [0, []], listed.stderr)
      const told = yield* svc(["link", ".", "below", "--json"])
      assert.deepStrictEqual(JSON.parse(told.stdout), {
        file: path.join(below, "svc.yaml"),
        apiUrl: url,
        organization: "main",
        project: "shop"
      })

      // A folder stands for its project, and never for one of somewhere else.
      const beside = path.join(cwd, "beside")
      fs.mkdirSync(beside)
      const of = Effect.fnUntraced(function* (settings: string) {
        fs.writeFileSync(path.join(beside, "svc.yaml"), settings)
        return yield* svc(["deployments", "ls", "./beside", "--json"])
      })
      const own = yield* of("project: other\n")
      assert.deepStrictEqual([own.code, JSON.parse(own.stdout)], [0, []], own.stderr)
      for (const [settings, flag] of [
        ["organization: elsewhere", /--org elsewhere/],
        ["apiUrl: https://svc.example.com", /--api-url https:\/\/svc\.example\.com/]
      ] as const) {
        const { code, stderr } = yield* of(`project: other\n${settings}\n`)
        assert.strictEqual(code, 2)
        assert.match(stderr, flag)
      }

      assert.strictEqual((yield* svc(["link", "nothing"])).code, 5)
      assert.strictEqual(fs.readFileSync(file, "utf8"), text)
      fs.writeFileSync(file, "- a list\n")
      assert.strictEqual((yield* svc(["link", "shop"])).code, 1)
      assert.strictEqual(fs.readFileSync(file, "utf8"), "- a list\n")
    })
  )
})
