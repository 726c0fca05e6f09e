/** Single services and what an operator does by hand, against a real control plane with real servers. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { createClient } from "redis"
import { Plane } from "#test/setup/control-plane.ts"
import { serversNaming } from "#test/setup/processes.ts"
import { Operator, signedIn } from "./control-plane.ts"

const ping = (url: string, ca: string) =>
  Effect.promise(async () => {
    const client = createClient({ url, socket: { tls: true, ca, reconnectStrategy: false } })
    client.on("error", () => undefined)
    try {
      await client.connect()
      return await client.ping()
    } catch (error) {
      return String(error)
    } finally {
      if (client.isOpen) client.destroy()
    }
  })

/** Each of these starts a dozen programs. */
const patience = 600_000

const pages = "shop/production/Cache/pages"

layer(signedIn(), { excludeTestServices: true, timeout: "2 minutes" })("services", (it) => {
  it.effect("signing in takes a key from a pipe, checks it and stores it for its owner alone", () =>
    Effect.gen(function* () {
      const { svc, credentialsFile, signIn } = yield* Operator
      const { url, apiKey, session } = yield* Plane
      fs.rmSync(path.dirname(credentialsFile), { recursive: true })
      const unknown = `svc_${"0".repeat(40)}`
      const [wrong, refused] = yield* Effect.all(
        [
          svc(["login", "--api-key", "--api-url", url], { stdin: "hunter2" }),
          svc(["login", "--api-key", "--api-url", url], { stdin: unknown })
        ],
        { concurrency: 2 }
      )
      assert.deepStrictEqual([wrong.code, refused.code], [2, 4])
      assert.isFalse(fs.existsSync(credentialsFile))
      const done = yield* svc(["login", "--api-key", "--api-url", url], { stdin: `${apiKey}\n` })
      assert.strictEqual(done.code, 0, done.stderr)
      assert.strictEqual(fs.statSync(credentialsFile).mode & 0o777, 0o600)
      assert.strictEqual(fs.statSync(path.dirname(credentialsFile)).mode & 0o777, 0o700)
      assert.deepStrictEqual(JSON.parse(fs.readFileSync(credentialsFile, "utf8")), {
        apiUrl: url,
        organization: "main",
        apiKey
      })
      const me = JSON.parse((yield* svc(["whoami", "--json"])).stdout)
      assert.deepStrictEqual(
        [me.credential, me.organizations[0].slug, me.organizations[0].role],
        ["key", "main", "admin"]
      )
      assert.strictEqual((yield* svc(["logout"])).code, 0)
      assert.isFalse(fs.existsSync(credentialsFile))
      signIn({ apiUrl: url, organization: "main", apiKey, session })
    })
  )

  it.effect("projects and environments are created, listed and deleted with what is in them", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      const made = yield* svc(["projects", "create", "shop", "--name", "My shop", "--json"])
      assert.strictEqual(made.code, 0, made.stderr)
      assert.deepInclude(JSON.parse(made.stdout), { slug: "shop", name: "My shop" })
      assert.strictEqual((yield* svc(["environments", "create", "shop", "staging"])).code, 0)
      const [projects, environments, taken] = yield* Effect.all(
        [
          svc(["projects", "ls"]),
          svc(["environments", "ls", "shop", "--json"]),
          svc(["projects", "create", "shop"])
        ],
        { concurrency: 3 }
      )
      assert.match(projects.stdout, /^shop +My shop /m)
      assert.sameMembers(
        JSON.parse(environments.stdout).map(({ slug }: { slug: string }) => slug),
        ["preview", "production", "staging"]
      )
      assert.strictEqual(taken.code, 6)
      const gone = yield* svc(["environments", "delete", "shop", "staging", "--yes"])
      assert.strictEqual(gone.code, 0, gone.stderr)
      assert.strictEqual((yield* svc(["environments", "rm", "shop", "staging", "--yes"])).code, 5)
      assert.strictEqual((yield* svc(["projects", "delete", "shop"])).code, 2)
      const deleted = yield* svc(["projects", "delete", "shop", "--yes", "--json"])
      assert.strictEqual(JSON.parse(deleted.stdout).deleted, true, deleted.stderr)
      assert.deepStrictEqual(JSON.parse((yield* svc(["status", "--json"])).stdout), { resources: [] })
    })
  )

  it.effect("any operation can be called; the exit code says what became of it", () =>
    Effect.gen(function* () {
      const { svc, cwd } = yield* Operator
      const project = { name: "Shop", slug: "shop" }
      fs.writeFileSync(path.join(cwd, "body.json"), JSON.stringify(project))
      const target = "/v1/orgs/{org}/projects"
      const made = yield* svc(["api", "POST", target, "--data", "@body.json"])
      assert.strictEqual(made.code, 0, made.stdout)
      assert.strictEqual(JSON.parse(made.stdout).slug, "shop")
      const [taken, missing, invalid] = yield* Effect.all(
        [
          svc(["api", "POST", target, "--data", "-"], { stdin: JSON.stringify(project) }),
          svc(["api", "GET", `${target}/nope`]),
          svc(["api", "POST", target, "--data", "{}"])
        ],
        { concurrency: 3 }
      )
      assert.deepStrictEqual([taken.code, missing.code, invalid.code], [6, 5, 1])
      assert.strictEqual(JSON.parse(taken.stdout).code, "slug_taken")
    })
  )

  it.effect(
    "a cache is created, changed, rotated and deleted, each command ending when it is done",
    () =>
      Effect.gen(function* () {
        const { svc } = yield* Operator
        const { call, dataDir } = yield* Plane
        const ca = (yield* call("GET", "/v1/ca.pem", { token: null })).text
        const made = yield* svc(["caches", "create", "shop", "pages", "--persistence", "none"])
        assert.strictEqual(made.code, 0, made.stderr)
        // The connection string alone is data.
        assert.match(made.stdout, /^rediss:\/\/svc:\S+@127\.0\.0\.1:\d+\n$/)
        assert.strictEqual(yield* ping(made.stdout.trim(), ca), "PONG")
        const [again, listed, got, human] = yield* Effect.all(
          [
            svc(["caches", "create", "shop", "pages"]),
            svc(["caches", "ls", "shop"]),
            svc(["caches", "get", "shop", "pages", "--json"]),
            svc(["caches", "get", "shop", "pages"])
          ],
          { concurrency: 2 }
        )
        assert.strictEqual(again.code, 6)
        assert.match(
          listed.stdout,
          /^NAME +STATUS +SKU +ADDRESS\npages +ready +cache-n1 +127\.0\.0\.1:\d+\n$/
        )
        const cache = JSON.parse(got.stdout)
        assert.strictEqual(cache.status, "ready")
        assert.match(human.stdout, /^Status +ready$/m)

        const updated = yield* svc([
          "caches",
          "update",
          "shop",
          "pages",
          "--eviction-policy",
          "noeviction",
          "--json"
        ])
        assert.strictEqual(updated.code, 0, updated.stderr)
        assert.strictEqual(JSON.parse(updated.stdout).evictionPolicy, "noeviction")
        assert.strictEqual((yield* svc(["caches", "update", "shop", "pages"])).code, 2)

        const rotated = yield* svc(["caches", "rotate", "shop", "pages", "--json"])
        assert.strictEqual(rotated.code, 0, rotated.stderr)
        const { connectionString } = JSON.parse(rotated.stdout)
        assert.match(yield* ping(made.stdout.trim(), ca), /WRONGPASS/)
        assert.strictEqual(yield* ping(connectionString, ca), "PONG")

        assert.strictEqual(serversNaming(`${dataDir}/caches/${cache.id}`).length, 1)
        const unsure = yield* svc(["caches", "delete", "shop", "pages"])
        assert.strictEqual(unsure.code, 2)
        assert.strictEqual(serversNaming(`${dataDir}/caches/${cache.id}`).length, 1)
        const deleted = yield* svc(["caches", "delete", "shop", "pages", "--yes", "--json"])
        assert.strictEqual(deleted.code, 0, deleted.stderr)
        assert.deepStrictEqual(JSON.parse(deleted.stdout), { uid: cache.id, address: pages, deleted: true })
        assert.isFalse(fs.existsSync(path.join(dataDir, "caches", cache.id)))
        assert.deepStrictEqual(serversNaming(`${dataDir}/caches/${cache.id}`), [])
        assert.strictEqual((yield* svc(["caches", "get", "shop", "pages"])).code, 5)
      }),
    patience
  )

  it.effect(
    "a database is provisioned, rotated and deleted",
    () =>
      Effect.gen(function* () {
        const { svc, start } = yield* Operator
        const { call } = yield* Plane
        // Paused, it is seen on its way, however quick that is and however late the command looks.
        const pause = { scope: "kind", target: "Database", reason: "a test looks" }
        assert.strictEqual((yield* call("POST", "/v1/orgs/main/pauses", { body: pause })).status, 202)
        const provisioning = start(["database", "provision", "shop", "--json"])
        yield* Effect.promise(() => provisioning.says(/shop\/production\/Database\/\w+ {2}(pending|waiting)/))
        yield* call("DELETE", "/v1/orgs/main/pauses?scope=kind&target=Database")
        const made = yield* Effect.promise(() => provisioning.ended)
        assert.strictEqual(made.code, 0, made.stderr)
        assert.hasAllKeys(JSON.parse(made.stdout), ["status", "connectionString", "caCertificateUrl"])
        const [got, human] = yield* Effect.all(
          [svc(["database", "get", "shop", "--json"]), svc(["database", "get", "shop"])],
          { concurrency: 2 }
        )
        assert.strictEqual(JSON.parse(got.stdout).status, "ready")
        assert.match(human.stdout, /^Address +127\.0\.0\.1:\d+$/m)
        const rotated = yield* svc(["database", "rotate", "shop"])
        assert.match(rotated.stdout, /^postgres:\/\/\S+\n$/)
        assert.notStrictEqual(rotated.stdout.trim(), JSON.parse(made.stdout).connectionString)
        const deleted = yield* svc(["database", "delete", "shop", "--yes"])
        assert.strictEqual(deleted.code, 0, deleted.stderr)
        assert.match(deleted.stderr, /and its data are gone/)
        const [gone, none] = yield* Effect.all(
          [svc(["database", "get", "shop"]), svc(["database", "delete", "shop", "--yes"])],
          { concurrency: 2 }
        )
        assert.deepStrictEqual([gone.code, none.code], [5, 5])
      }),
    patience
  )

  it.effect(
    "variables come from a pipe or a file, never from an argument, and are masked",
    () =>
      Effect.gen(function* () {
        const { svc, cwd } = yield* Operator
        const secret = "canary 71c2\nwith a second line"
        const set = yield* svc(["env", "set", "shop", "TOKEN"], { stdin: `${secret}\n` })
        assert.strictEqual(set.code, 0, set.stderr)
        fs.writeFileSync(path.join(cwd, ".env.shop"), "A=1\nB='two words'\n")
        const many = yield* svc(["env", "set", "shop", "--from-file", ".env.shop", "--json"])
        assert.deepStrictEqual(JSON.parse(many.stdout), { set: ["A", "B"] })
        const [argument, nothing, both, masked, shown] = yield* Effect.all(
          [
            svc(["env", "set", "shop", "TOKEN=canary-in-argument"]),
            svc(["env", "set", "shop"]),
            svc(["env", "set", "shop", "A", "--from-file", ".env.shop"]),
            svc(["env", "ls", "shop"]),
            svc(["env", "ls", "shop", "--show", "--json"])
          ],
          { concurrency: 3 }
        )
        assert.deepStrictEqual([argument.code, nothing.code, both.code], [2, 2, 2])
        assert.strictEqual(masked.stdout, "A=****\nB=****\nTOKEN=****\n")
        assert.deepStrictEqual(JSON.parse(shown.stdout), [
          { key: "A", value: "1" },
          { key: "B", value: "two words" },
          { key: "TOKEN", value: secret }
        ])
        assert.notInclude(set.stdout + set.stderr + argument.stderr, "canary")
        // What is shown can be set again as it is.
        fs.writeFileSync(path.join(cwd, ".env.again"), (yield* svc(["env", "ls", "shop", "--show"])).stdout)
        yield* svc(["env", "set", "shop", "--from-file", ".env.again", "-e", "preview"])
        const preview = yield* svc(["env", "ls", "shop", "--show", "--json", "-e", "preview"])
        assert.deepStrictEqual(JSON.parse(preview.stdout), JSON.parse(shown.stdout))
        const removed = yield* svc(["env", "rm", "shop", "A", "--yes"])
        assert.strictEqual(removed.code, 0, removed.stderr)
        assert.strictEqual((yield* svc(["env", "rm", "shop", "A", "--yes"])).code, 5)
      }),
    patience
  )

  it.effect(
    "status, its watch, history, drift and what an operator does about it",
    () =>
      Effect.gen(function* () {
        const { svc, start } = yield* Operator
        const { dataDir } = yield* Plane
        const watch = start(["status", "--watch", "--json", "--kind", "Cache"])
        const made = yield* svc(["caches", "create", "shop", "pages", "--json"])
        const { id } = JSON.parse(made.stdout)
        const [all, human, events, calm] = yield* Effect.all(
          [
            svc(["status", "--json"]),
            svc(["status", "--project", "shop", "--kind", "cache"]),
            svc(["events", pages, "--json"]),
            svc(["diff"])
          ],
          { concurrency: 2 }
        )
        const { resources } = JSON.parse(all.stdout)
        const found = resources.find(({ uid }: { uid: string }) => uid === id)
        assert.deepStrictEqual([found.address, found.phase, found.kind], [pages, "ready", "Cache"])
        assert.deepStrictEqual(
          human.stdout.split("\n").map((line) => line.split(/ {2,}/)[0]),
          ["ADDRESS", pages, ""]
        )
        assert.isAbove(JSON.parse(events.stdout).items.length, 0)
        assert.deepStrictEqual([calm.code, calm.stdout], [0, ""])
        const [shown, waited, nowhere] = yield* Effect.all(
          [svc(["show", pages]), svc(["wait", pages, "Project/shop"]), svc(["wait", "shop/nowhere"])],
          { concurrency: 3 }
        )
        assert.match(shown.stdout, /^Ready +true +Converged/m)
        assert.match(shown.stdout, /^ {2}evictionPolicy: allkeys-lru$/m)
        assert.deepStrictEqual([waited.code, nowhere.code], [0, 5])

        yield* Effect.promise(() => watch.says(`"phase":"ready"`))
        watch.child.kill("SIGINT")
        const watched = yield* Effect.promise(() => watch.ended)
        assert.strictEqual(watched.code, 130)
        for (const line of watched.stdout.trim().split("\n")) {
          const change = JSON.parse(line)
          assert.hasAllKeys(change, ["deleted", "resource"])
          assert.strictEqual(change.resource.kind, "Cache")
        }

        const paused = yield* svc(["pause", pages, "--reason", "a test looks", "--hours", "1", "--json"])
        assert.strictEqual(paused.code, 0, paused.stderr)
        const condition = JSON.parse(paused.stdout).conditions.find(
          ({ type }: { type: string }) => type === "Paused"
        )
        assert.deepStrictEqual([condition.status, condition.reason], ["true", "PausedByUser"])
        const config = path.join(dataDir, "caches", id, "redis.conf")
        fs.writeFileSync(config, fs.readFileSync(config, "utf8").replace("allkeys-lru", "noeviction"))
        yield* svc(["retry", pages])
        const [drift, asJson, change] = yield* Effect.all(
          [
            svc(["diff", pages]),
            svc(["diff", "--json"]),
            svc(["caches", "update", "shop", "pages", "--sku", "cache-s1"])
          ],
          { concurrency: 3 }
        )
        assert.strictEqual(drift.code, 2)
        assert.match(drift.stdout, new RegExp(`^! ${pages}\n {4}\\S+: `))
        assert.strictEqual(asJson.code, 2)
        assert.strictEqual(JSON.parse(asJson.stdout).drift[0].uid, id)
        // To wait for what is paused would be to wait for ever.
        assert.strictEqual(change.code, 1)
        assert.include(change.stderr, `svc resume ${pages}`)
        const resumed = yield* svc(["resume", pages])
        assert.strictEqual(resumed.code, 0, resumed.stderr)
        assert.strictEqual((yield* svc(["diff", pages])).code, 0)
        assert.include(fs.readFileSync(config, "utf8"), "allkeys-lru")

        assert.strictEqual((yield* svc(["protect", pages])).code, 0)
        assert.strictEqual((yield* svc(["caches", "rm", "shop", "pages", "--yes"])).code, 6)
        const off = yield* svc(["protect", "--off", pages, "--json"])
        assert.strictEqual(JSON.parse(off.stdout).protected, false)

        assert.strictEqual((yield* svc(["abandon", pages, "--reason", "moves away"])).code, 2)
        const left = yield* svc(["abandon", pages, "--reason", "moves away", "--yes", "--json"])
        assert.strictEqual(left.code, 0, left.stderr)
        assert.isNumber(JSON.parse(left.stdout).leftBehind.port)
        // One that writes its file has a child for a moment.
        assert.isNotEmpty(serversNaming(`${dataDir}/caches/${id}`))
        assert.strictEqual((yield* svc(["events", pages])).code, 5)
      }),
    patience
  )
})

/** Requests are stored and nothing acts on them, so waiting never ends by itself. */
layer(signedIn({ roles: new Set(["api"] as const) }), { excludeTestServices: true, timeout: "2 minutes" })(
  "without an engine",
  (it) => {
    it.effect(
      "waiting ends after the given time with 7, or with 130 on Ctrl-C, and says how to look again",
      () =>
        Effect.gen(function* () {
          const { svc, start, manifest } = yield* Operator
          const { call } = yield* Plane
          yield* call("POST", "/v1/orgs/main/projects", { body: { name: "Shop", slug: "shop" } })
          const [late, stored, retry, absent, waited] = yield* Effect.all(
            [
              svc(["env", "set", "shop", "A", "--timeout", "1"], { stdin: "1" }),
              svc(["env", "set", "shop", "B", "--no-wait"], { stdin: "1" }),
              svc(["retry", "Project/shop", "--timeout", "1"]),
              svc(["caches", "create", "shop", "pages", "--timeout", "1"]),
              svc(["wait", "--timeout", "1"])
            ],
            { concurrency: 2 }
          )
          for (const { code, stderr } of [late, retry, absent, waited]) {
            assert.strictEqual(code, 7, stderr)
            assert.include(stderr, "svc status --watch")
          }
          assert.strictEqual(stored.code, 0)
          const applying = start([
            "apply",
            "-f",
            manifest(
              "version: 1\norganization: main\nprojects: [{ name: Two, slug: two, runtimeClass: always-on }]"
            )
          ])
          yield* Effect.promise(() => applying.says("Project/two  pending"))
          applying.child.kill("SIGINT")
          const interrupted = yield* Effect.promise(() => applying.ended)
          assert.strictEqual(interrupted.code, 130)
          assert.include(interrupted.stderr, "watch it with: svc status --watch; wait again with: svc wait")
          const { body } = yield* call("GET", "/v1/orgs/main/resources?kind=Project")
          assert.includeMembers(
            body.items.map(({ name }: { name: string }) => name),
            ["shop", "two"]
          )
        })
    )
  }
)
