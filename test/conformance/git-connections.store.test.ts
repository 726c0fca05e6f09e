import { createHmac, generateKeyPairSync } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { GitConnectionList, GitConnectionView, NewGitConnection } from "#src/git/api.ts"
import { fits } from "#test/setup/answers.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"

/** An organization, and calls about its connections. */
const setting = Effect.gen(function* () {
  const { call, tenant } = yield* Plane
  const mine = yield* tenant()
  const base = `/v1/orgs/${mine.slug}/git-connections`
  const ask = (method: string, path = "", body?: unknown, token = mine.adminKey) =>
    call(method, `${base}${path}`, { token, ...(body === undefined ? {} : { body }) })
  const create = (more: object = {}) =>
    ask("POST", "", { name: "acme", kind: "github_token", owner: "Acme", token: "ghp_canary1", ...more })
  return { mine, base, ask, create }
})

layer(testPlane(), { excludeTestServices: true })("connections", (it) => {
  it.effect("are made with a secret that is shown once, listed by name, changed and deleted", () =>
    Effect.gen(function* () {
      const { mine, ask, create } = yield* setting
      const { call, sql, url } = yield* Plane
      const made = yield* create()
      assert.strictEqual(made.status, 201, made.text)
      yield* fits(NewGitConnection, made.body)
      assert.deepInclude(made.body, {
        url: "https://github.com",
        owner: "acme",
        webhookUrl: `${url}/v1/git/webhooks/${made.body.id}`,
        account: null,
        checkedAt: null
      })
      assert.match(made.body.webhookSecret, /^[0-9a-f]{64}$/)
      const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 })
      const pem = privateKey.export({ type: "pkcs8", format: "pem" }).toString()
      const app = yield* create({
        name: "a-app",
        kind: "github_app",
        owner: "other",
        token: undefined,
        appId: "12",
        installationId: "34",
        privateKey: pem,
        webhookSecret: "a secret of ours, canary2"
      })
      assert.deepStrictEqual([app.status, app.body.webhookSecret], [201, "a secret of ours, canary2"])

      const listed = yield* ask("GET")
      yield* fits(GitConnectionList, listed.body)
      assert.deepStrictEqual(
        listed.body.map(({ name }: { name: string }) => name),
        ["a-app", "acme"]
      )
      const [stored] = yield* sql(
        `select string_agg(c::text || encode(sealed, 'escape'), '') as rows from git_connection c where org_id = '${mine.id}'`
      )
      for (const text of [listed.text, String(stored?.["rows"])])
        for (const secret of ["canary", "PRIVATE KEY", made.body.webhookSecret])
          assert.notInclude(text, secret)

      const one = `/${made.body.id}`
      const changed = yield* ask("PATCH", one, { name: "renamed", token: "ghp_canary3" })
      assert.deepStrictEqual(
        [changed.status, changed.body.name, changed.body.owner],
        [200, "renamed", "acme"]
      )
      const shown = yield* ask("GET", one)
      yield* fits(GitConnectionView, shown.body)
      assert.deepStrictEqual(shown.body, changed.body)
      assert.deepStrictEqual((yield* ask("DELETE", one)).body, { ok: true })
      assert.strictEqual((yield* ask("GET", one)).status, 404)
      const audit = yield* call("GET", `/v1/orgs/${mine.slug}/audit?resource=${made.body.id}`, {
        token: mine.owner
      })
      assert.deepStrictEqual(
        audit.body.items
          // Refusals are written down a moment later.
          .filter(({ outcome }: { outcome: number }) => outcome < 400)
          .map(({ operation }: { operation: string }) => operation),
        ["gitConnections.delete", "gitConnections.update", "gitConnections.create"]
      )
    })
  )

  it.effect("say every fault of a request, and whose name or owner is taken", () =>
    Effect.gen(function* () {
      const { ask, create } = yield* setting
      const faults = Effect.fnUntraced(function* (more: object) {
        const { status, body } = yield* create(more)
        assert.strictEqual(status, 422)
        return body.errors.map(({ pointer }: { pointer: string }) => pointer)
      })
      assert.deepStrictEqual(yield* faults({ token: undefined }), ["/token"])
      assert.deepStrictEqual(yield* faults({ kind: "github_app" }), [
        "/appId",
        "/installationId",
        "/privateKey",
        "/token"
      ])
      assert.deepStrictEqual(yield* faults({ kind: "gitea" }), ["/url"])
      for (const url of [
        "https://10.0.0.1",
        "https://169.254.169.254/",
        "http://example.com",
        "https://u:p@example.com"
      ])
        assert.deepStrictEqual(yield* faults({ url }), ["/url"], url)
      assert.deepStrictEqual(yield* faults({ owner: "a/b" }), ["/owner"])
      const { id } = (yield* create()).body
      assert.strictEqual((yield* create({ owner: "second" })).body.code, "connection_exists")
      assert.strictEqual((yield* create({ name: "second" })).body.code, "connection_exists")
      const wrong = yield* ask("PATCH", `/${id}`, { privateKey: "x" })
      assert.deepStrictEqual([wrong.status, wrong.body.errors[0].pointer], [422, "/privateKey"])
    })
  )

  it.effect("are the business of admins of their own organization", () =>
    Effect.gen(function* () {
      const { mine, ask, create } = yield* setting
      const { call, tenant } = yield* Plane
      const { id } = (yield* create()).body
      assert.strictEqual((yield* ask("GET", "", undefined, mine.memberKey)).status, 403)
      const other = yield* tenant()
      const elsewhere = `/v1/orgs/${other.slug}/git-connections/${id}`
      for (const [method, path] of [
        ["GET", elsewhere],
        ["DELETE", elsewhere],
        ["POST", `${elsewhere}/check`]
      ] as const)
        assert.strictEqual((yield* call(method, path, { token: other.adminKey })).status, 404)
      assert.strictEqual((yield* ask("GET", `/${id}`)).status, 200)
    })
  )

  it.effect("tell what was wrong when the forge was asked", () =>
    Effect.gen(function* () {
      const { ask, create } = yield* setting
      // Nothing listens there.
      const { id } = (yield* create({ kind: "forgejo", url: "https://127.0.0.1:9/" })).body
      const checked = yield* ask("POST", `/${id}/check`)
      assert.strictEqual(checked.status, 200, checked.text)
      assert.match(checked.body.checkError, /cannot be asked/)
      assert.notInclude(checked.text, "canary")
      const changed = yield* ask("PATCH", `/${id}`, { token: "another" })
      assert.deepStrictEqual([changed.body.checkError, changed.body.checkedAt], [null, null])
    })
  )

  it.effect("keep each delivery of a forge once, also when it comes twice at the same moment", () =>
    Effect.gen(function* () {
      const { create } = yield* setting
      const { sql, url } = yield* Plane
      const { id, webhookSecret } = (yield* create()).body
      const body = JSON.stringify({
        action: "opened",
        pull_request: { number: 7 },
        repository: { full_name: "Acme/Shop" }
      })
      const send = Effect.promise(() =>
        fetch(`${url}/v1/git/webhooks/${id}`, {
          method: "POST",
          headers: {
            "x-github-event": "pull_request",
            "x-github-delivery": "72d3162e",
            "x-hub-signature-256": `sha256=${createHmac("sha256", webhookSecret).update(body).digest("hex")}`
          },
          body
        }).then(({ status }) => status)
      )
      assert.deepStrictEqual(yield* Effect.all([send, send, send], { concurrency: 3 }), [200, 200, 200])
      const kept = yield* sql(
        `select event, repo, pull_request from git_delivery where connection_id = '${id}'`
      )
      assert.deepStrictEqual(kept, [{ event: "pull_request", repo: "acme/shop", pull_request: 7 }])
    })
  )
})
