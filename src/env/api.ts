/** The encrypted variables of an environment. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as Schema from "effect/Schema"
import { mostVariables, VariableValue } from "#schemas/env-variables.ts"
import { VariableKey } from "#schemas/names.ts"
import { Deleted, environmentQuery, projectParams } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"

const Variable = Schema.Struct({
  key: VariableKey,
  value: VariableValue,
  build: Schema.optionalKey(Schema.Boolean).annotateKey({
    description: "Whether builds are given it as well; left out: as before, which is no at first"
  })
}).annotate({ identifier: "Variable" })

export const VariableList = Schema.Array(Variable)

/** Two values for one key would leave it to chance which of them holds. */
const eachKeyOnce = Schema.makeFilter((vars: ReadonlyArray<typeof Variable.Type>) => {
  const seen = new Set<string>()
  return vars.flatMap(({ key }, i) => {
    if (!seen.has(key)) {
      seen.add(key)
      return []
    }
    return [{ path: [i, "key"], issue: `${key} is named twice` }]
  })
})

const base = "/v1/orgs/:orgId/projects/:projectId/env"
const place = { params: projectParams, query: environmentQuery } as const
const target = { type: "environment" } as const

export const Env = group("env", "The encrypted variables of an environment.").add(
  HttpApiEndpoint.get("list", base, {
    ...place,
    success: VariableList,
    error: problems()
  }).annotateMerge(
    operation(
      "env.list",
      "read",
      "admin",
      "Read the variables of an environment, decrypted; once there are any, with an ETag of the set",
      { alsoAnswers: { headers: ["etag"] }, target }
    )
  ),
  HttpApiEndpoint.put("set", base, {
    ...place,
    payload: Schema.Struct({
      vars: Schema.Array(Variable).check(Schema.isMaxLength(mostVariables), eachKeyOnce)
    }),
    success: Schema.Struct({ count: Schema.Int }),
    error: bodyProblems(402, 412)
  }).annotateMerge(
    operation("env.set", "write", "admin", "Set variables; others stay as they are", {
      sensitive: true,
      billing: true,
      conditional: true,
      target
    })
  ),
  HttpApiEndpoint.delete("delete", `${base}/:key`, {
    ...place,
    params: { ...projectParams, key: Schema.String },
    success: Deleted,
    error: problems(412)
  }).annotateMerge(
    operation("env.delete", "destructive", "admin", "Remove a variable", { conditional: true, target })
  )
)
