import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { AuthorizationRequests } from "#src/agents/AuthorizationRequests.ts"
import { Clients } from "#src/agents/Clients.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { type Responder, receiver } from "#test/outbound/receiver.ts"
import { queryOf, world } from "./world.ts"

const redirect = "https://agent.example/cb"
const json = { "content-type": "application/json" }

layer(world(), { excludeTestServices: true })("documents of clients", (it) => {
  /** A server of documents: for each path what it answers, given its own URL. */
  const served = (answers: Readonly<Record<string, (id: string) => string>>, respond?: Responder) =>
    Effect.gen(function* () {
      const server = yield* receiver((request, response) => {
        if (respond !== undefined) return respond(request, response)
        const answer = answers[request.path]
        response.writeHead(answer === undefined ? 404 : 200, json)
        response.end(answer?.(`${server.url()}${request.path}`))
      })
      return server
    })
  const good = (client_id: string, more: object = {}) =>
    JSON.stringify({ client_id, client_name: "An\u202e agent", redirect_uris: [redirect], ...more })

  it.effect("make a client for MCP, once read for all who ask", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const server = yield* served({ "/client.json": (id) => good(id) })
        const clients = yield* Clients
        const id = `${server.url()}/client.json`
        const found = yield* Effect.all(
          Array.from({ length: 8 }, () => clients.find(id)),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(found[0], { id, name: "An agent", redirectUris: [redirect], audience: "mcp" })
        yield* clients.find(id)
        assert.deepStrictEqual(
          server.received.map(({ method, body, headers }) => [method, body, headers["content-length"]]),
          [["GET", "", undefined]]
        )
        const requests = yield* AuthorizationRequests
        const query = { client_id: id, redirect_uri: redirect, scope: undefined }
        yield* requests.begin(queryOf(query))
        const elsewhere = yield* Effect.flip(
          requests.begin(queryOf({ ...query, redirect_uri: `${redirect}2` }))
        )
        assert.deepInclude(elsewhere, { _tag: "AuthorizationRefused", redirect: null })
      })
    )
  )

  it.effect("that are not what they should be make none, and are not asked for again at once", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const server = yield* served({
          "/other": () => good("https://agent.example/client.json"),
          "/secret": (id) => good(id, { token_endpoint_auth_method: "client_secret_post" }),
          "/key": (id) => good(id, { token_endpoint_auth_method: "private_key_jwt" }),
          "/long": (id) => good(id, { more: "x".repeat(17_000) }),
          "/text": () => "hello",
          "/list": () => "[]"
        })
        const clients = yield* Clients
        for (const path of ["/other", "/secret", "/key", "/long", "/text", "/list", "/missing"]) {
          for (const _ of [1, 2]) {
            const failed = yield* Effect.flip(clients.find(`${server.url()}${path}`))
            assert.strictEqual(failed._tag, "ClientUnknown", path)
          }
          assert.strictEqual(server.received.filter((one) => one.path === path).length, 1, path)
        }
        const moved = yield* served({}, ({ path }, response) => {
          response.writeHead(path === "/moved" ? 302 : 200, { ...json, location: `/client.json` })
          response.end(good(`${moved.url()}${path}`))
        })
        yield* Effect.flip(clients.find(`${moved.url()}/moved`))
        assert.deepStrictEqual(
          moved.received.map(({ path }) => path),
          ["/moved"]
        )
        const page = yield* served({}, (_, response) => {
          response.writeHead(200, { "content-type": "text/html" })
          response.end(good(`${page.url()}/x`))
        })
        yield* Effect.flip(clients.find(`${page.url()}/x`))
        assert.strictEqual(page.received.length, 1)
      })
    )
  )

  it.effect("lose addresses that answers may not go to", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const redirect_uris = [redirect, "http://agent.example/cb", "javascript:alert(1)"]
        const server = yield* served({ "/x": (id) => good(id, { redirect_uris }) })
        const { redirectUris } = yield* (yield* Clients).find(`${server.url()}/x`)
        assert.deepStrictEqual(redirectUris, [redirect])
      })
    )
  )

  it.effect("are not asked for where requests may not go, nor where the id is no address of one", () =>
    Effect.scoped(
      Effect.gen(function* () {
        const server = yield* served({ "/x": (id) => good(id) })
        const host = `127.0.0.1:${server.port}`
        const clients = yield* Clients
        for (const id of [
          `http://${host}/x`,
          `https://${host}`,
          `https://${host}/`,
          `https://${host}/x#y`,
          `https://user@${host}/x`,
          `https://${host}/a/../x`,
          `HTTPS://${host}/x`,
          "https://10.0.0.1/x",
          "https://169.254.169.254/x",
          "ftp://agent.example/x"
        ]) {
          assert.strictEqual((yield* Effect.flip(clients.find(id)))._tag, "ClientUnknown", id)
        }
        assert.deepStrictEqual(server.received, [])
      })
    )
  )
})

layer(world({}, "https://svc.example"), { excludeTestServices: true })(
  "a service that others reach",
  (it) => {
    it.effect("asks nobody on its own machine or network for documents, whatever users may reach", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const server = yield* receiver((_, response) => response.end())
          const clients = yield* Clients
          for (const host of ["127.0.0.1", "localhost", "[::1]"]) {
            const id = `https://${host}:${server.port}/x`
            assert.strictEqual((yield* Effect.flip(clients.find(id)))._tag, "ClientUnknown", id)
          }
          assert.deepStrictEqual(server.received, [])
          // A user's own address is reached all the same.
          const outbound = yield* Outbound
          const answer = yield* outbound.get({ url: `${server.url()}/x`, headers: {}, timeoutMs: 5_000 })
          assert.strictEqual(answer.status, 200)
        })
      )
    )
  }
)
