import { assert, it } from "@effect/vitest"
import { remediations } from "#schemas/maintenance.ts"
import { isOlder } from "#src/maintenance/checks/versions.ts"
import { operationOf, requestOf } from "#src/maintenance/operations.ts"

it("what may be carried out without a person is not destructive, and an admin's key may call it", () => {
  for (const id of remediations) {
    const { operation } = operationOf(id) ?? assert.fail(`there is no operation ${id}`)
    assert.include(["read", "write"], operation.risk, id)
    assert.include(["member", "admin"], operation.role, id)
    assert.include(operation.credentials, "key", id)
  }
})

it("requests name each part of a path as it is, and the key that makes them once", () => {
  const remedy = {
    ...{ operationId: "domains.check", risk: "write" as const, command: "" },
    parameters: { path: { projectId: "a/../b", domainId: "c d" }, query: { environment: "e&f" } }
  }
  assert.deepStrictEqual(requestOf(remedy, "org", "action"), {
    method: "POST",
    url: "/v1/orgs/org/projects/a%2F..%2Fb/domains/c%20d/check?environment=e%26f",
    headers: { "idempotency-key": "action" },
    body: undefined
  })
  assert.isUndefined(requestOf({ ...remedy, operationId: "nothing" }, "org", "action"))
})

it("versions are compared number by number", () => {
  assert.isTrue(isOlder("18.9", "18.10"))
  assert.isTrue(isOlder("7.0", "7.0.1"))
  assert.isFalse(isOlder("18.1", "18.1"))
  assert.isFalse(isOlder("8.0.4", "7.9.9"))
})
