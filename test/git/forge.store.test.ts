/** What is asked of forges, of a stand-in for each kind. */
import { generateKeyPairSync } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "#src/config.ts"
import { type ConnectionKind, connectionKinds } from "#src/git/connection-kinds.ts"
import { Forge } from "#src/git/Forge.ts"
import { GitConnections, type OpenConnection } from "#src/git/GitConnections.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { forgeStandIn } from "./forge-stand-in.ts"

const world = Forge.layer.pipe(
  Layer.provideMerge(GitConnections.layer),
  Layer.provide(Outbound.layer),
  Layer.provide(AppConfig.layerWith({ outboundAllow: ["127.0.0.0/8"] })),
  Layer.provideMerge(CertificateAuthority.layer.pipe(Layer.provide(memorySecrets().layer))),
  Layer.provide(KeyRing.layerEphemeral),
  Layer.provide(testDb())
)

const keys = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  publicKeyEncoding: { type: "spki", format: "pem" },
  privateKeyEncoding: { type: "pkcs8", format: "pem" }
})

const connected = Effect.fnUntraced(function* (kind: ConnectionKind, token = "canary-token") {
  const standIn = yield* forgeStandIn(kind, { token: "canary-token", appKey: keys.publicKey })
  const isApp = kind === "github_app"
  const connection: OpenConnection = {
    orgId: uuid(),
    id: uuid(),
    name: "acme",
    kind,
    url: standIn.url,
    owner: "acme",
    appId: isApp ? "12" : null,
    installationId: isApp ? "34" : null,
    account: null,
    checkedAt: null,
    checkError: null,
    createdAt: new Date(0),
    secrets: {
      token: isApp ? undefined : Redacted.make(token),
      privateKey: isApp ? Redacted.make(keys.privateKey) : undefined,
      webhookSecret: Redacted.make("secret")
    }
  }
  const client = (yield* Forge).client(connection)
  return { ...standIn, client, connection }
})

layer(world, { excludeTestServices: true })("a forge", (it) => {
  for (const kind of connectionKinds)
    it.effect(
      `of the kind ${kind} is asked for its repositories and pull requests, and told what became of them`,
      () =>
        Effect.gen(function* () {
          const { client, state } = yield* connected(kind)
          assert.strictEqual(yield* client.account, kind === "github_app" ? "our-app[bot]" : "deployer")
          const repository = yield* client.repository("acme/shop")
          assert.deepStrictEqual([repository.repo, repository.defaultBranch], ["acme/shop", "main"])
          const credential = yield* client.credential
          assert.strictEqual(Redacted.value(credential.token), "canary-token")

          // More than a page of them.
          for (let number = 1; number <= 60; number++) state.pulls.push({ number, head: `c${number}` })
          state.pulls.push(
            { number: 70, head: "c", fork: "eve/shop" },
            { number: 71, head: "c", fork: null },
            { number: 72, head: "c", state: "closed" },
            { number: 73, head: "c", state: "merged" }
          )
          const open = yield* client.pullRequests("acme/shop")
          assert.lengthOf(open, 62)
          assert.deepStrictEqual(
            open.filter(({ isFork }) => isFork).map(({ number }) => number),
            [70, 71]
          )
          const states = yield* Effect.forEach([1, 72, 73], (number) =>
            client.pullRequest("acme/shop", number)
          )
          assert.deepStrictEqual(
            states.map(({ state }) => state),
            ["open", "closed", "merged"]
          )
          assert.deepStrictEqual(states[0]?.head, { commit: "c1", branch: "topic" })

          yield* client.setStatus("acme/shop", "c1", {
            context: "svc/plan",
            state: "failure",
            description: "x".repeat(500),
            targetUrl: "https://svc.test/plan"
          })
          const [status] = state.statuses
          assert.strictEqual(status?.["commit"], "c1")
          assert.strictEqual(status?.["state"], kind === "gitlab" ? "failed" : "failure")
          assert.isAtMost(String(status?.["description"]).length, 255)

          // Somebody else's comment with our mark is left alone.
          state.comments.push({ id: 1, body: "<!-- svc -->\nnot ours", by: "eve" })
          for (const body of ["first", "first", "second"])
            yield* client.comment("acme/shop", 7, { marker: "svc", body })
          assert.deepStrictEqual(
            state.comments.map(({ body, by }) => [body.split("\n")[1], by === "eve"]),
            [
              ["not ours", true],
              ["second", false]
            ]
          )
        })
    )

  it.effect("gives an app a token that is used until shortly before it ends, or is not taken any more", () =>
    Effect.gen(function* () {
      const [{ connection, state }, short] = [yield* connected("github_app"), yield* connected("github_app")]
      // Each look has a client of its own.
      const ask = (of: OpenConnection) =>
        Effect.flatMap(Forge, (forge) => forge.client(of).repository("acme/shop"))
      for (let i = 0; i < 3; i++) yield* ask(connection)
      assert.strictEqual(state.tokens, 1)
      state.instead = { status: 401 }
      yield* Effect.flip(ask(connection))
      state.instead = undefined
      yield* ask(connection)
      assert.strictEqual(state.tokens, 2)
      // Of another installation it is another one.
      yield* Effect.ignore(ask({ ...connection, installationId: "35" }))
      yield* ask(connection)
      assert.strictEqual(state.tokens, 2)
      short.state.tokenMs = 600_000
      for (let i = 0; i < 3; i++) yield* ask(short.connection)
      assert.strictEqual(short.state.tokens, 3)
    })
  )

  it.effect("that refuses says why, in words that are not its own", () =>
    Effect.gen(function* () {
      const { client, state } = yield* connected("github_token")
      const missing = yield* Effect.flip(client.pullRequest("acme/shop", 999))
      assert.strictEqual(missing.code, "missing")
      for (const [status, headers, code] of [
        [401, {}, "credential"],
        [403, {}, "credential"],
        [403, { "x-ratelimit-remaining": "0" }, "limited"],
        [429, {}, "limited"],
        [301, { location: "https://169.254.169.254/" }, "unreachable"],
        [502, {}, "unreachable"],
        [422, {}, "rejected"],
        [200, {}, "unreachable"]
      ] as const) {
        state.instead = { status, headers }
        const error = yield* Effect.flip(client.repository("acme/shop"))
        assert.strictEqual(error.code, code, `${status}`)
        assert.notInclude(error.message, "canary")
      }
      const wrong = yield* connected("gitlab", "another")
      assert.strictEqual((yield* Effect.flip(wrong.client.account)).code, "credential")
    })
  )
})
