import { assert, it } from "@effect/vitest"
import * as Redacted from "effect/Redacted"
import { type Server, serverVariables } from "#src/apps/variables.ts"

const server = (kind: Server["kind"], name: string, port: number): Server => ({
  kind,
  name,
  host: "services.svc.internal",
  port,
  user: kind === "Cache" ? null : "app",
  dbName: kind === "Cache" ? null : "app",
  password: Redacted.make(`of-${name}`)
})

const ca = {
  SVC_CA_FILE: "/etc/svc/ca.pem",
  PGSSLROOTCERT: "/etc/svc/ca.pem",
  NODE_EXTRA_CA_CERTS: "/etc/svc/ca.pem"
}

it("an environment without servers has no variables of them", () => {
  assert.deepStrictEqual(serverVariables([]), {})
})

it("the oldest cache is the one without a name, and each has one with its name", () => {
  const cache = (name: string, port: number) => `rediss://svc:of-${name}@services.svc.internal:${port}`
  assert.deepStrictEqual(serverVariables([server("Cache", "web-1", 1), server("Cache", "api", 2)]), {
    ...ca,
    REDIS_URL: cache("web-1", 1),
    REDIS_URL_WEB_1: cache("web-1", 1),
    REDIS_URL_API: cache("api", 2)
  })
})

it("the database comes before its branches, and the oldest branch stands in for one that is not there", () => {
  const url = (name: string, port: number) =>
    `postgres://app:of-${name}@services.svc.internal:${port}/app?sslmode=verify-full`
  const branches = [server("DatabaseBranch", "copy", 1), server("DatabaseBranch", "later", 2)]
  assert.deepStrictEqual(serverVariables(branches), { ...ca, DATABASE_URL: url("copy", 1) })
  assert.deepStrictEqual(serverVariables([...branches, server("Database", "main", 3)]), {
    ...ca,
    DATABASE_URL: url("main", 3)
  })
})
