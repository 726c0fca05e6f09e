/** MCP resources and prompts, and following resources. */

import { assert, layer } from "@effect/vitest"
import { ProtocolError } from "@modelcontextprotocol/client"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { StreamLimits } from "#src/api/streams.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"
import { connect, lines, makeGrant, post } from "./clients.ts"

const makeProjects = (slugs: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const { call, tenant } = yield* Plane
    const owner = yield* tenant()
    const base = `/v1/orgs/${owner.slug}`
    const made = yield* Effect.forEach(slugs, (slug) =>
      call("POST", `${base}/projects`, { token: owner.adminKey, body: { name: slug, slug } })
    )
    return { ...owner, base, uids: made.map(({ body }) => String(body.id)) }
  })

const text = ({ contents }: { readonly contents: ReadonlyArray<object> }) => {
  const [first] = contents
  return first !== undefined && "text" in first ? String(first.text) : ""
}

layer(testPlane(), { excludeTestServices: true })("MCP resources", (it) => {
  for (const line of lines) {
    it.effect(`with ${line} are listed page by page and read as the caller`, () =>
      Effect.gen(function* () {
        const { url } = yield* Plane
        const { adminKey, uids, slug } = yield* makeProjects(["one", "two"])
        const { client } = yield* connect(line, url, { token: adminKey })
        const { resources } = yield* Effect.promise(() => client.listResources())
        const [uid = ""] = uids
        assert.strictEqual(resources[0]?.uri, "svc://manifest")
        assert.includeMembers(
          resources.map(({ uri }) => uri),
          uids.map((one) => `svc://resources/${one}`)
        )
        const { resourceTemplates } = yield* Effect.promise(() => client.listResourceTemplates())
        assert.deepStrictEqual(
          resourceTemplates.map(({ uriTemplate }) => uriTemplate),
          ["svc://resources/{uid}", "svc://resources/{uid}/events"]
        )
        const read = (uri: string) =>
          Effect.map(
            Effect.promise(() => client.readResource({ uri })),
            text
          )
        assert.include(yield* read("svc://manifest"), `organization: ${slug}`)
        assert.strictEqual(JSON.parse(yield* read(`svc://resources/${uid}`)).uid, uid)
        assert.isArray(JSON.parse(yield* read(`svc://resources/${uid}/events`)).items)
        const other = yield* makeProjects(["one"])
        for (const uri of [
          `svc://resources/${other.uids[0]}`,
          "svc://resources/..",
          "svc://nothing",
          "file:///etc/passwd"
        ]) {
          const refused = yield* Effect.promise(() =>
            client.readResource({ uri }).catch((error: unknown) => error)
          )
          assert.match(String(refused), /not found/, uri)
        }
      })
    )

    it.effect(`a stranger with ${line} sees what there is and reads nothing; prompts are for everybody`, () =>
      Effect.gen(function* () {
        const { url } = yield* Plane
        const { client } = yield* connect(line, url)
        const { resources } = yield* Effect.promise(() => client.listResources())
        assert.deepStrictEqual(
          resources.map(({ uri }) => uri),
          ["svc://manifest"]
        )
        const refused = yield* Effect.promise(() =>
          client.readResource({ uri: "svc://manifest" }).catch((error: unknown) => error)
        )
        assert.include(String(refused), "Sign in")
        const { prompts } = yield* Effect.promise(() => client.listPrompts())
        assert.deepStrictEqual(
          prompts.map(({ name }) => name),
          ["review_plan", "why_not_ready"]
        )
        const prompt = yield* Effect.promise(() =>
          client.getPrompt({
            name: "why_not_ready",
            arguments: { resource: "shop/production/Cache/sessions" }
          })
        )
        assert.include(JSON.stringify(prompt.messages), "shop/production/Cache/sessions")
        const unknown = yield* Effect.promise(() =>
          client.getPrompt({ name: "constructor" }).catch((error: unknown) => error)
        )
        assert.isTrue(unknown instanceof ProtocolError || String(unknown).includes("review_plan"))
      })
    )
  }

  it.effect("are listed to the end by cursors", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const { adminKey, uids } = yield* makeProjects(Array.from({ length: 40 }, (_, at) => `project-${at}`))
      const { client } = yield* connect("v2", url, { token: adminKey })
      const first = yield* Effect.promise(() => client.listResources({}))
      const seen = first.resources.map(({ uri }) => uri)
      let cursor = first.nextCursor
      while (cursor !== undefined) {
        const at: string = cursor
        const page = yield* Effect.promise(() => client.listResources({ cursor: at }))
        seen.push(...page.resources.map(({ uri }) => uri))
        cursor = page.nextCursor
      }
      assert.strictEqual(new Set(seen).size, seen.length)
      assert.includeMembers(
        seen,
        uids.map((uid) => `svc://resources/${uid}`)
      )
      assert.isAbove(seen.length, 100)
    })
  )

  it.effect("a grant reads what its scopes let it read", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const owner = yield* makeProjects(["one"])
      const { token } = yield* makeGrant(owner, { scopes: ["resources.get"] })
      const { client } = yield* connect("v2", url, { token })
      const { resources } = yield* Effect.promise(() => client.listResources())
      assert.strictEqual(resources.length, 1)
      const [uid] = owner.uids
      const read = yield* Effect.promise(() => client.readResource({ uri: `svc://resources/${uid}` }))
      assert.include(text(read), String(uid))
      const message = { jsonrpc: "2.0", id: 1, method: "resources/read", params: { uri: "svc://manifest" } }
      const refused = yield* post(url, message, { authorization: `Bearer ${token}` })
      assert.deepStrictEqual(
        [refused.status, /scope="([^"]*)"/.exec(refused.headers.get("www-authenticate") ?? "")?.[1]],
        [403, "resources.get manifest.get"]
      )
    })
  )
})

/** A client that follows resources, what it heard, and whether it still does. */
const listening = (token: string, uris: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const { url } = yield* Plane
    const { client } = yield* connect("v2", url, { token })
    const heard: Array<string> = []
    client.setNotificationHandler(
      "notifications/resources/updated",
      ({ params }) => void heard.push(params.uri)
    )
    const subscription = yield* Effect.promise(() => client.listen({ resourceSubscriptions: [...uris] }))
    let open = true
    void subscription.closed.finally(() => {
      open = false
    })
    return { heard, isOpen: () => open, subscription }
  })

layer(testPlane(), { excludeTestServices: true })("following resources", (it) => {
  it.effect("tells of changes of those that were asked for, in the caller's organization", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const { adminKey, base, uids } = yield* makeProjects(["one", "two"])
      const [one, two] = uids.map((uid) => `svc://resources/${uid}`)
      const stranger = yield* makeProjects(["one"])
      const mine = yield* listening(adminKey, [String(one), "svc://manifest"])
      const theirs = yield* listening(stranger.adminKey, [String(one), String(two)])
      const change = (slug: string) =>
        call("PATCH", `${base}/projects/${slug}`, { token: adminKey, body: { name: "Changed" } })
      yield* change("two")
      yield* change("one")
      yield* eventually(
        "it is told",
        Effect.sync(() => mine.heard.includes(String(one)) && mine.heard.includes("svc://manifest"))
      )
      assert.includeMembers([...new Set(mine.heard)], ["svc://manifest", String(one)])
      assert.notInclude(mine.heard, two)
      assert.deepStrictEqual(theirs.heard, [])
    })
  )

  it.effect("ends once the credential does not hold any more, and tells nothing after that", () =>
    Effect.gen(function* () {
      const { call, sql } = yield* Plane
      const owner = yield* makeProjects(["one"])
      const uri = `svc://resources/${owner.uids[0]}`
      // From here on nothing changes by itself.
      yield* eventually(
        "it is ready",
        sql(`select phase from resource where uid = '${owner.uids[0]}'`),
        ([row]) => row?.phase === "ready"
      )
      const { token, id } = yield* makeGrant(owner, { scopes: ["resources.watch"] })
      const { heard, isOpen } = yield* listening(token, [uri])
      yield* sql(`update agent_grant set revoked_at = now() where id = '${id}'`)
      yield* call("PATCH", `${owner.base}/projects/one`, { token: owner.adminKey, body: { name: "Changed" } })
      yield* eventually(
        "the stream ends",
        Effect.sync(() => !isOpen())
      )
      assert.deepStrictEqual(heard, [])
    })
  )

  it.effect("needs a credential with the scope", () =>
    Effect.gen(function* () {
      const { url, tenant } = yield* Plane
      const owner = yield* tenant()
      const { token } = yield* makeGrant(owner, { scopes: ["resources.get"] })
      const message = {
        jsonrpc: "2.0",
        id: 1,
        method: "subscriptions/listen",
        params: { notifications: { resourceSubscriptions: ["svc://manifest"] } }
      }
      assert.strictEqual((yield* post(url, message)).status, 401)
      assert.strictEqual((yield* post(url, message, { authorization: `Bearer ${token}` })).status, 403)
    })
  )
})

const narrow = testPlane().pipe(
  Layer.provide(Layer.succeed(StreamLimits, { credential: 1, organization: 2 }))
)

layer(narrow, { excludeTestServices: true })("streams of changes", (it) => {
  it.effect("are bound for each credential, and one that a client closes makes room", () =>
    Effect.gen(function* () {
      const { url } = yield* Plane
      const { adminKey, memberKey } = yield* makeProjects(["one"])
      const first = yield* listening(adminKey, ["svc://manifest"])
      const { client } = yield* connect("v2", url, { token: adminKey })
      const again = Effect.promise(() =>
        client.listen({ resourceSubscriptions: ["svc://manifest"] }).then(
          () => "open",
          (error: unknown) => String(error)
        )
      )
      assert.include(yield* again, "Close some")
      yield* listening(memberKey, ["svc://manifest"])
      yield* Effect.promise(() => first.subscription.close())
      yield* eventually("another may be opened", again, (answer) => answer === "open")
    })
  )
})
