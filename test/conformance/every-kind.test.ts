/**
 * What the operations of every kind of resource promise alike, provoked over HTTP for each kind that has some. A new
 * kind is found by its definition; its bodies are made from the specification, unless `given` says what no schema tells.
 */
import { assert, describe, it, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as OpenApi from "effect/http-api/OpenApi"
import * as Layer from "effect/Layer"
import { kinds } from "#schemas/index.ts"
import type { Role } from "#schemas/kind.ts"
import { Api } from "#src/api/definition/api.ts"
import { Operation } from "#src/api/definition/operation.ts"
import { OperationOfKind } from "#src/api/definition/resource-group.ts"
import { untilAnswer } from "#test/setup/answers.ts"
import { type Answer, Plane, type RequestOptions, type Tenant, testPlane } from "#test/setup/control-plane.ts"
import { answeringNode } from "#test/setup/edge-node.ts"
import { type ObjectStore, objectStore, trust } from "#test/setup/s3.ts"

class Store extends Context.Service<Store, ObjectStore>()("test/ObjectStore") {}
// Without a container engine executions wait for one.
const world = Layer.unwrap(
  Effect.map(objectStore, (store) => {
    trust(store.caPem)
    return Layer.merge(testPlane({ containerSocket: "none" }), Layer.succeed(Store, store))
  })
)

/** Kinds whose operations are of another shape: of each there is one at most in an environment, or in a project. */
const ofAnotherShape = [
  "AccessPolicy",
  "App",
  "Budget",
  "CustomerPayments",
  "Database",
  "EnvVariables",
  "Maintenance"
]

interface Given {
  /** Parts of the body of a creation that its schema alone does not tell. */
  readonly create?: (store: ObjectStore) => object
  /** What else has to be there: parameters of the path, by name. */
  readonly parents?: (mine: Tenant) => Effect.Effect<Readonly<Record<string, string>>, never, Plane>
}
const given: Readonly<Record<string, Given>> = {
  Cron: { create: () => ({ schedule: "0 0 1 1 *", target: { kind: "http", path: "/jobs" } }) },
  Deployment: { create: () => ({ image: "alpine:3" }) },
  GitSource: { create: () => ({ url: "https://git.example.test/platform.git", suspended: true }) },
  Preview: { create: () => ({ pullRequest: 7, commit: "a".repeat(40) }) },
  Execution: { create: () => ({ image: "alpine:3", command: ["true"], region: "local" }) },
  BackupDestination: {
    create: ({ endpoint, bucket, credentials }) => ({ endpoint, bucket, credentials })
  },
  DatabaseBranch: {
    create: () => ({ environment: "preview", region: "local", sku: "db-n1", source: { kind: "current" } }),
    parents: Effect.fnUntraced(function* ({ slug, owner }) {
      const { call } = yield* Plane
      const path = `/v1/orgs/${slug}/projects/shop/database`
      const made = yield* call("POST", path, { token: owner })
      assert.strictEqual(made.status, 201, made.text)
      const allowed = yield* call("PATCH", `/v1/orgs/${slug}/projects/shop`, {
        token: owner,
        body: { previewData: "allowed" }
      })
      assert.strictEqual(allowed.status, 200, allowed.text)
      return { databaseId: (yield* call("GET", path, { token: owner })).body.id }
    })
  }
}

// biome-ignore lint/suspicious/noExplicitAny: a specification, whatever it holds.
const document: any = JSON.parse(JSON.stringify(OpenApi.fromApi(Api)))

/** The least that fits a schema of the specification. */
// biome-ignore lint/suspicious/noExplicitAny: see above.
const sample = (schema: any): unknown => {
  if (schema.$ref !== undefined) return sample(document.components.schemas[schema.$ref.split("/").at(-1)])
  const alternatives = schema.anyOf ?? []
  const type = Array.isArray(schema.type) ? schema.type : [schema.type]
  if (type.includes("null") || alternatives.some((one: { type?: string }) => one.type === "null")) return null
  if (schema.examples !== undefined) return schema.examples[0]
  if (schema.enum !== undefined) return schema.enum[0]
  if (alternatives.length > 0) return sample(alternatives[0])
  switch (type[0]) {
    case "object":
      return Object.fromEntries(
        (schema.required ?? []).map((name: string) => [name, sample(schema.properties[name])])
      )
    case "array":
      return Array.from({ length: schema.minItems ?? 0 }, () => sample(schema.items))
    case "integer":
    case "number":
      return schema.minimum ?? 1
    case "boolean":
      return false
    default:
      return "made-by-a-test"
  }
}

const endpoints = Object.values(Api.groups).flatMap((group) =>
  Object.entries(group.endpoints).map(([name, { method, path, annotations }]) => {
    const operation = Context.get(annotations, Operation)
    if (operation === undefined) throw new Error(`${path} has no metadata`)
    const described = document.paths[path.replaceAll(/:([A-Za-z]+)/g, "{$1}")][method.toLowerCase()]
    return {
      group: group.identifier,
      name,
      method,
      path,
      operation,
      kind: Context.get(annotations, OperationOfKind),
      conditional: described.parameters.some(({ name = "", $ref = "" }) =>
        [name, $ref.split("/").at(-1)].includes("If-Match")
      ),
      tagged: described.responses[200]?.headers?.ETag !== undefined,
      sample: () => {
        const content = described.requestBody?.content["application/json"]
        return content === undefined ? undefined : sample(content.schema)
      }
    }
  })
)
type Endpoint = (typeof endpoints)[number]

const subjects = [...new Set(endpoints.flatMap(({ kind }) => kind ?? []))].map((kind) => {
  const [first] = endpoints.filter((one) => one.kind === kind)
  const own = endpoints.filter(({ group }) => group === first?.group)
  const find = (name: string) => own.find((one) => one.name === name)
  const create = find("create") ?? find("add") ?? assert.fail(`${kind} cannot be created`)
  // What operations on one of them are about.
  const single = own.find(({ path }) => path.startsWith(`${create.path}/:`))
  const param = single?.path.slice(create.path.length + 2).split("/")[0] ?? assert.fail(`${kind} has no id`)
  return {
    kind,
    create,
    param,
    list: find("list") ?? assert.fail(`${kind} cannot be listed`),
    get: find("get"),
    update: find("update"),
    remove: find("delete") ?? find("remove"),
    /** All that name one of them. */
    single: own.filter(({ path }) => path.split("/").includes(`:${param}`)),
    /** Whether the query names the environment. */
    inEnvironment: create.operation.target?.type === "environment"
  }
})

const rank: Readonly<Record<Role, number>> = { member: 0, admin: 1, owner: 2 }

describe("kinds", () => {
  it("have operations, each of them", () => {
    assert.sameMembers(
      [...subjects.map(({ kind }) => kind), ...ofAnotherShape],
      kinds.map(({ name }) => name)
    )
  })
})

layer(world, { excludeTestServices: true, timeout: "3 minutes" })("the operations of every kind", (it) => {
  for (const subject of subjects) {
    it.effect(
      subject.kind,
      () =>
        Effect.gen(function* () {
          const { call, tenant, sql, databaseUrl } = yield* Plane
          // Domains are added and removed only where an edge answers.
          if (subject.kind === "Domain") yield* answeringNode(databaseUrl)
          const { kind, create, list, get, update, remove, param, single } = subject
          const [mine, other] = [yield* tenant(), yield* tenant()]
          for (const [{ slug, owner }, project] of [
            [mine, "shop"],
            [mine, "elsewhere"],
            [other, "shop"]
          ] as const) {
            const body = { name: project, slug: project }
            const made = yield* call("POST", `/v1/orgs/${slug}/projects`, { token: owner, body })
            assert.strictEqual(made.status, 201)
          }
          const parents = (yield* given[kind]?.parents?.(mine) ?? Effect.succeed({})) as Record<
            string,
            string
          >
          const fill = (path: string, values: Readonly<Record<string, string>>) =>
            path.replaceAll(/:([A-Za-z]+)/g, (_, name: string) =>
              encodeURIComponent(
                values[name] ??
                  { orgId: mine.slug, projectId: "shop", ...parents }[name] ??
                  crypto.randomUUID()
              )
            )
          const send = (
            one: Endpoint,
            values: Readonly<Record<string, string>>,
            { token = mine.owner, ...options }: RequestOptions = {},
            query = ""
          ) =>
            call(one.method, fill(one.path, values) + query, {
              token,
              ...(one === create ? {} : { body: one.sample() }),
              ...options
            })
          const told = (answer: Answer, status: number, code?: string) =>
            assert.deepStrictEqual(
              [answer.status, ...(code === undefined ? [] : [answer.body.code])],
              [status, ...(code === undefined ? [] : [code])],
              answer.text
            )

          // Created once for each key, and once for each name.
          const far = yield* Store
          const body = { ...(create.sample() as object), ...given[kind]?.create?.(far) }
          const isNamed = "name" in body || "slug" in body
          const headers = { "idempotency-key": `every/${kind}` }
          const made = yield* send(create, {}, { body, headers })
          assert.include([201, 202], made.status, made.text)
          const { id } = made.body
          assert.isString(id)
          const replayed = yield* send(create, {}, { body, headers })
          assert.deepStrictEqual([replayed.status, replayed.text], [made.status, made.text])
          assert.strictEqual(replayed.headers.get("idempotency-replayed"), "true")
          if (isNamed) {
            const taken = yield* send(create, {}, { body })
            assert.strictEqual(taken.status, 409, taken.text)
            assert.match(taken.body.code, /^(name|slug)_taken$/)
          }

          // Listed and read by whose it is, and by nobody else.
          const ids = ({ body: all }: Answer) => all.map((one: { id: string }) => one.id)
          const listed = yield* send(list, {})
          told(listed, 200)
          assert.strictEqual(ids(listed).filter((one: string) => one === id).length, 1)
          if (given[kind]?.parents === undefined) {
            const theirs = yield* send(list, { orgId: other.slug }, { token: other.owner })
            told(theirs, 200)
            assert.notInclude(ids(theirs), id)
          }
          const at = { [param]: id }
          if (get !== undefined) {
            const read = yield* send(get, at)
            told(read, 200)
            assert.strictEqual(read.body.id, id)
            if (get.tagged) assert.match(read.headers.get("etag") ?? "", /^"\d+"$/)
          }
          for (const one of [list, create, ...single]) {
            const what = `${one.operation.id}: `
            const options = one === create ? { body } : {}
            const nobody = yield* send(one, at, { ...options, token: null })
            assert.strictEqual(nobody.status, 401, what + nobody.text)
            const foreign = yield* send(one, at, { ...options, token: other.owner })
            told(foreign, 404, "not_found")
            const role = one.operation.role ?? "member"
            for (const [token, has] of [
              [mine.memberKey, "member"],
              [mine.adminKey, "admin"]
            ] as const) {
              if (rank[has] < rank[role]) told(yield* send(one, at, { ...options, token }), 403)
            }
          }
          // Not under another's organization, not under another id, not in another project.
          for (const one of single) {
            const theirs = yield* send(one, { ...at, orgId: other.slug }, { token: other.owner })
            assert.strictEqual(theirs.status, 404, `${one.operation.id}: ${theirs.text}`)
            if (one.path.includes(":projectId") && param !== "projectId") {
              const moved = yield* send(one, { ...at, projectId: "elsewhere" })
              assert.strictEqual(moved.status, 404, `${one.operation.id}: ${moved.text}`)
            }
            for (const unknown of ["nonsense", crypto.randomUUID()]) {
              const missing = yield* send(one, { [param]: unknown })
              assert.strictEqual(missing.status, 404, `${one.operation.id}: ${missing.text}`)
            }
          }
          for (const one of [list, create].filter(({ path }) => path.includes(":projectId"))) {
            told(yield* send(one, { projectId: "nope" }, { body: undefined }), 404, "not_found")
            if (subject.inEnvironment) {
              told(yield* send(one, {}, { body: undefined }, "?environment=nope"), 404, "not_found")
            }
          }

          // Every fault is told with its field.
          const pointers = ({ body: { errors } }: Answer) =>
            errors.map(({ pointer }: { pointer: string }) => pointer)
          const excess = yield* send(create, {}, { body: { ...body, nonsense: 1 } })
          told(excess, 422, "invalid")
          assert.deepStrictEqual(pointers(excess), ["/nonsense"])
          const empty = yield* send(create, {}, { body: {} })
          told(empty, 422, "invalid")
          assert.isNotEmpty(pointers(empty))
          const strange = yield* send(list, {}, {}, "?nonsense=1")
          told(strange, 422, "invalid")
          assert.deepStrictEqual(pointers(strange), ["/query/nonsense"])

          // Changed and deleted on top of what is there, or not at all.
          const stale = { "if-match": '"0"' }
          for (const one of [update, remove].flatMap((found) => found ?? [])) {
            assert.isTrue(one.conditional, one.operation.id)
            told(yield* send(one, at, { headers: stale }), 412, "revision_mismatch")
          }
          if (update !== undefined) {
            const odd = yield* send(update, at, { body: { ...(update.sample() as object), nonsense: 1 } })
            told(odd, 422, "invalid")
            assert.deepStrictEqual(pointers(odd), ["/nonsense"])
            const changed = yield* send(update, at, { headers: { "if-match": "*" } })
            told(changed, 200)
            assert.strictEqual(changed.body.id, id)
            assert.match(changed.headers.get("etag") ?? "", /^"\d+"$/)
          }

          // Reading and deleting stay possible for those who do not pay.
          const billing = (status: string) =>
            sql(`update organization set billing_status = '${status}' where id = '${mine.id}'`)
          yield* billing("past_due")
          told(yield* send(create, {}, { body }), 402, "billing_inactive")
          if (update?.operation.billing === true) {
            told(yield* send(update, at), 402, "billing_inactive")
          }
          told(yield* send(list, {}), 200)

          if (remove === undefined) return
          const deleted = yield* send(remove, at)
          told(deleted, 200)
          assert.deepStrictEqual(deleted.body, { ok: true })
          yield* untilAnswer(send(list, {}), (answer) => !ids(answer).includes(id))
          told(yield* send(remove, at), 404, "not_found")
          const audited = yield* sql(
            `select operation from audit_log where org_id = '${mine.id}' and resource = '${id}' and outcome < 400`
          )
          const expected = [create, ...(update === undefined ? [] : [update]), remove]
          assert.includeMembers(
            audited.map(({ operation }) => operation),
            expected.map(({ operation }) => operation.id)
          )
          assert.strictEqual(
            audited.filter(({ operation }) => operation === create.operation.id).length,
            1,
            "a creation is audited once"
          )
        }),
      300_000
    )
  }
})
