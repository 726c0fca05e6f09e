/** What the tool `search` finds, and what it says of it. */

import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import { Api } from "#src/api/definition/api.ts"
import { isObject } from "#src/api/definition/json-schema.ts"
import { Operation } from "#src/api/definition/operation.ts"
import type { Caller } from "#src/mcp/caller.ts"
import { makeCatalogue } from "#src/mcp/catalogue.ts"
import { makeIndex, search } from "#src/mcp/search.ts"

const catalogue = makeCatalogue()
const index = makeIndex(catalogue)

const caller = (role: "admin" | "member", scopes?: ReadonlyArray<string>): Caller => {
  const organization = { id: "org", slug: "org", role, billingStatus: "active" }
  const grant =
    scopes === undefined
      ? undefined
      : {
          kind: "grant" as const,
          grantId: "grant",
          userId: "user",
          clientId: "client",
          clientName: "Agent",
          audience: "mcp" as const,
          role,
          scopes
        }
  return {
    credential: { kind: scopes === undefined ? "key" : "grant", digest: Buffer.alloc(32) },
    identity: { credentialId: "id", userId: null, lastUsedAt: null, provedAt: null, grant, organization },
    organization
  }
}

/** Operations as `search` answers them. */
const found = (query: string, more: { limit?: number; offset?: number } = {}, by?: Caller) => {
  const { operations, next } = search(index, by, { query, ...more })
  assert.isArray(operations)
  return {
    operations: (operations as ReadonlyArray<unknown>).filter(isObject),
    ids: (operations as ReadonlyArray<unknown>).filter(isObject).map(({ id }) => String(id)),
    next: String(next)
  }
}

describe("search", () => {
  it("finds what people ask for in their words", () => {
    const wanted: ReadonlyArray<readonly [string, string]> = [
      ["create a cache", "caches.create"],
      ["delete cache", "caches.delete"],
      ["restore a backup", "backups.restore"],
      ["run a container", "executions.create"],
      ["show me the logs", "executions.logs"],
      ["who did what", "audit.list"],
      ["send a message to a queue", "queues.publish"],
      ["pause a resource", "resources.pause"],
      ["set environment variables", "env.set"],
      ["change the password of the database", "database.rotatePassword"],
      ["apply a manifest", "manifest.apply"],
      ["new API key", "apikeys.create"],
      ["promote branch", "databaseBranches.promote"],
      ["redis", "caches.create"],
      ["list databaseBranches", "databaseBranches.list"]
    ]
    for (const [query, id] of wanted) {
      const { ids } = found(query, { limit: 6 })
      assert.include(ids, id, query)
    }
    assert.deepStrictEqual(found("zzz").ids, [])
    assert.include(found("zzz").next, "Try other ones")
  })

  it("finds every operation by its id, in full, however long that is", () => {
    for (const id of catalogue.keys()) assert.deepStrictEqual(found(id).ids, [id])
    const [apply] = found("manifest.apply").operations
    assert.isAbove(JSON.stringify(apply).length, 10_000)
    assert.notInclude(JSON.stringify(apply), "$ref")
  })

  it("knows no operation whose answer only streams, which no tool can read", () => {
    const streamed = Object.values(Api.groups).flatMap(({ endpoints }) =>
      Object.values(endpoints).flatMap((endpoint) => {
        const operation = Context.get(endpoint.annotations, Operation)
        return operation?.worksWhileAnswering === true ? [operation.id] : []
      })
    )
    assert.include(streamed, "apps.exec")
    for (const id of streamed) assert.isFalse(catalogue.has(id), id)
    assert.isTrue(catalogue.has("apps.logs"))
  })

  it("is short: the first ones in full, the others in a line, the rest by an offset", () => {
    const { operations, next } = found("create", { limit: 25 })
    assert.isBelow(JSON.stringify(operations).length, 12_000)
    assert.isDefined(operations[0]?.["body"])
    assert.isUndefined(operations.at(-1)?.["body"])
    assert.include(next, "Search an id")
    const pages = [0, 5, 10].flatMap((offset) => found("project", { limit: 5, offset }).ids)
    assert.strictEqual(new Set(pages).size, 15)
  })

  it("says what each takes, what it risks, and whether this caller may", () => {
    const [create] = found("caches.create", {}, caller("admin")).operations
    assert.deepInclude(create, { risk: "write", allowed: true, role: "admin", needsActiveBilling: true })
    assert.deepInclude(create, {
      takesIdempotencyKey: true,
      bodyRequired: true,
      showsOnce: ["connectionString"]
    })
    assert.deepStrictEqual(Object.keys(Object(create?.["path"])), ["projectId"])
    assert.deepStrictEqual(Object.keys(Object(create?.["query"])), ["environment"])
    const may = (id: string, by?: Caller) => {
      const [one] = found(id, {}, by).operations
      return one?.["allowed"] === true ? true : one?.["because"]
    }
    assert.strictEqual(may("caches.create"), "Sign in, or send an API key")
    assert.include(may("caches.create", caller("member")), "needs the role admin")
    assert.include(may("apikeys.create", caller("admin")), "Only a person")
    const agent = caller("admin", ["caches.create"])
    assert.isTrue(may("caches.create", agent))
    assert.include(may("caches.update", agent), "not granted")
    assert.strictEqual(may("caches.delete", agent), "No agent can be granted this")
    const [remove] = found("caches.delete", {}, caller("admin")).operations
    assert.isTrue(remove?.["needsConfirmation"])
  })

  it("knows every secret that is shown once", () => {
    const secrets = [...catalogue.values()].flatMap(({ operation, shownOnce }) =>
      shownOnce.map((field) => `${operation.id} ${field}`)
    )
    assert.includeMembers(secrets, [
      "caches.create connectionString",
      "caches.rotateCredentials connectionString",
      "database.provision connectionString",
      "database.rotatePassword connectionString",
      "databaseBranches.rotatePassword connectionString",
      "environments.rotateSigningSecret signingSecret",
      "webhooks.create secret",
      "webhooks.rotateSecret secret"
    ])
  })
})
