/** Git connections, git sources, previews and deployments of commits from the command line. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Operator, signedIn } from "./control-plane.ts"

/** Nobody is at the forge, nothing can be built, and looks come when they are asked for. */
const world = signedIn(
  { containerSocket: "/nonexistent/engine.sock" },
  { SVC_BUILD_IMAGE: "localhost/none:1", SVC_GIT_POLL_SECONDS: "3600" }
)

layer(world, { excludeTestServices: true, timeout: "3 minutes" })("repositories", (it) => {
  it.effect("are connected, looked at, changed and left", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      const create = (name: string, kind: string, ...more: ReadonlyArray<string>) =>
        svc(["git-connections", "create", name, "--kind", kind, "--owner", name, ...more], {
          stdin: "canary-token\n"
        })
      const made = yield* create("acme", "gitea", "--url", "https://127.0.0.1:9")
      assert.strictEqual(made.code, 0, made.stderr)
      assert.match(made.stdout, /^[0-9a-f]{64}\n$/)
      assert.match(made.stderr, /https?:\/\/\S+\/v1\/git\/webhooks\/[0-9a-f-]{36}/)
      const [twice, nowhere, unknown] = yield* Effect.all([
        create("acme", "gitea", "--url", "https://127.0.0.1:9"),
        create("other", "gitea"),
        create("other", "sourcehut")
      ])
      assert.deepStrictEqual([twice.code, nowhere.code, unknown.code], [6, 1, 2], nowhere.stderr)

      const [table, listed, shown, checked] = yield* Effect.all([
        svc(["git-connections", "ls"]),
        svc(["git-connections", "ls", "--json"]),
        svc(["git-connections", "get", "acme"]),
        svc(["git-connections", "check", "acme"])
      ])
      assert.match(table.stdout, /acme +gitea +acme +https:\/\/127\.0\.0\.1:9 +not checked/)
      const [connection, ...others] = JSON.parse(listed.stdout)
      assert.lengthOf(others, 0)
      assert.include(shown.stdout, connection.webhookUrl)
      assert.strictEqual(checked.code, 1, checked.stderr)
      assert.include(checked.stderr, "The forge cannot be asked")

      const [renamed, replaced, nothing] = yield* Effect.all([
        svc(["git-connections", "update", "acme", "--name", "team", "--owner", "team"]),
        svc(["git-connections", "update", connection.id, "--secret"], { stdin: "canary-token-2\n" }),
        svc(["git-connections", "update", connection.id])
      ])
      assert.deepStrictEqual([renamed.code, replaced.code, nothing.code], [0, 0, 2], renamed.stderr)
      assert.include(replaced.stderr, "team (gitea, team): not checked")
      const said = [made, table, listed, shown, checked, renamed, replaced]
      assert.notInclude(said.map(({ stdout, stderr }) => stdout + stderr).join(), "canary")

      assert.strictEqual((yield* svc(["git-connections", "rm", "team"])).code, 2)
      assert.strictEqual((yield* svc(["git-connections", "rm", "team", "--yes"])).code, 0)
      assert.strictEqual((yield* svc(["git-connections", "get", "team"])).code, 5)
    })
  )

  it.effect("are what manifests are kept from", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      const url = "https://169.254.169.254/acme/platform.git"
      const made = yield* svc([
        "git-sources",
        "create",
        "platform",
        url,
        "--no-wait",
        "--json",
        "--interval",
        "600"
      ])
      assert.strictEqual(made.code, 0, made.stderr)
      const source = JSON.parse(made.stdout)
      assert.deepInclude(source, { url, ref: "main", path: null, intervalSeconds: 600, reviewed: false })
      const [twice, plain, unopened] = yield* Effect.all([
        svc(["git-sources", "create", "platform", url, "--no-wait"]),
        svc(["git-sources", "create", "other", "http://127.0.0.1:9/a/b", "--no-wait"]),
        svc(["git-sources", "create", "other", url, "--reviewed", "--no-wait"])
      ])
      assert.deepStrictEqual([twice.code, plain.code, unopened.code], [6, 2, 1], unopened.stderr)
      assert.include(unopened.stderr, "takes a git connection")

      const [suspended, stopped] = [
        yield* svc(["git-sources", "suspend", "platform"]),
        yield* svc(["git-sources", "sync", "platform"])
      ]
      assert.include(suspended.stderr, "platform is suspended")
      assert.strictEqual(stopped.code, 6, stopped.stderr)
      const changed = yield* svc([
        ...["git-sources", "update", "platform", "--path", "deploy/all.yaml", "--prune", "--ref", "next"],
        ...["--no-wait", "--json"]
      ])
      assert.strictEqual(changed.code, 0, changed.stderr)
      assert.deepInclude(JSON.parse(changed.stdout), { path: "deploy/all.yaml", prune: true, ref: "next" })
      const [table, shown] = yield* Effect.all([
        svc(["git-sources", "ls"]),
        svc(["git-sources", "get", source.id])
      ])
      assert.match(table.stdout, /platform +suspended +https:\S+ +next +none +none/)
      assert.match(shown.stdout, /Applies +what the ref says/)
      assert.match(shown.stdout, /Path +deploy\/all\.yaml/)
      const [resumed, looked] = [
        yield* svc(["git-sources", "resume", "platform"]),
        yield* svc(["git-sources", "sync", "platform"])
      ]
      assert.deepStrictEqual([resumed.code, looked.code], [0, 0], looked.stderr)
      assert.strictEqual((yield* svc(["git-sources", "rm", "platform"])).code, 2)
      const gone = yield* svc(["git-sources", "rm", "platform", "--yes"])
      assert.strictEqual(gone.code, 0, gone.stderr)
      assert.strictEqual((yield* svc(["git-sources", "ls", "--json"])).stdout.trim(), "[]")
    })
  )

  it.effect("have pull requests with previews, and commits that are deployed", () =>
    Effect.gen(function* () {
      const { svc } = yield* Operator
      yield* svc(["projects", "create", "shop"])
      const [first, second] = ["1".repeat(40), "2".repeat(40)]
      const create = ["previews", "create", "shop", "12", "--commit", first, "--title", "Change", "--fork"]
      const made = yield* svc([...create, "--no-wait", "--json"])
      assert.strictEqual(made.code, 0, made.stderr)
      assert.deepInclude(JSON.parse(made.stdout), {
        ...{ pullRequest: 12, commit: first, title: "Change", fork: true, trusted: false },
        environment: "preview-12"
      })
      const [twice, short, data] = yield* Effect.all([
        svc([...create, "--no-wait"]),
        svc(["previews", "create", "shop", "13", "--commit", "abc", "--no-wait"]),
        svc(["previews", "create", "shop", "13", "--commit", first, "--database", "production", "--no-wait"])
      ])
      assert.deepStrictEqual([twice.code, short.code, data.code], [6, 2, 2], data.stderr)
      const [moved, late] = [
        yield* svc(["previews", "update", "shop", "12", "--commit", second]),
        yield* svc(["previews", "approve", "shop", "12", "--commit", first])
      ]
      assert.deepStrictEqual([moved.code, late.code], [0, 6], late.stderr)
      const approved = yield* svc(["previews", "approve", "shop", "12", "--commit", second])
      assert.strictEqual(approved.code, 0, approved.stderr)
      const [table, shown] = yield* Effect.all([
        svc(["previews", "ls", "shop"]),
        svc(["previews", "get", "shop", "12"])
      ])
      assert.match(table.stdout, /#12 Change +\S+ +222222222222 +preview-12/)
      assert.match(shown.stdout, new RegExp(`Approved +${second}`))
      assert.strictEqual((yield* svc(["previews", "update", "shop", "12"])).code, 2)

      // No repository is named, none is opened, and what is named is no repository.
      const deploy = (...more: ReadonlyArray<string>) =>
        svc(["deploy", "shop", "--git", "main", "--no-wait", ...more])
      for (const [code, said, ...words] of [
        [1, /the project has none/],
        [1, /No git connection opens other\/shop/, "--repo", "other/shop"],
        [1, /169\.254\.169\.254/, "--repo", "https://169.254.169.254/acme/shop"],
        [2, /Name one folder/, "--image", "docker.io/library/a:1"]
      ] as const) {
        const refused = yield* deploy(...words)
        assert.strictEqual(refused.code, code, refused.stderr)
        assert.match(refused.stderr, said)
      }
      assert.strictEqual((yield* svc(["deploy", "shop", "--repo", "acme/shop"])).code, 2)

      assert.strictEqual((yield* svc(["previews", "close", "shop", "12"])).code, 2)
      const closed = yield* svc(["previews", "close", "shop", "12", "--yes"])
      assert.strictEqual(closed.code, 0, closed.stderr)
      assert.strictEqual((yield* svc(["previews", "get", "shop", "12"])).code, 5)
    })
  )
})
