/** The encrypted variables of an environment. */

import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiGroup from "effect/http-api/HttpApiGroup"
import * as Schema from "effect/Schema"
import { VariableKey } from "#schemas/names.ts"
import { Deleted, environmentQuery, projectParams } from "./fields.ts"
import { operation } from "./operation.ts"
import { bodyProblems, problems } from "./problem.ts"

/** Characters of one value: enough for certificates and service accounts. */
export const longestValue = 65_536
/** Variables of one environment. */
export const mostVariables = 1_000

const Variable = Schema.Struct({
  key: VariableKey,
  value: Schema.String.check(Schema.isMaxLength(longestValue))
}).annotate({ identifier: "Variable" })

const base = "/v1/orgs/:orgId/projects/:projectId/env"
const place = { params: projectParams, query: environmentQuery } as const
const target = { type: "environment" } as const

export const Env = HttpApiGroup.make("env").add(
  HttpApiEndpoint.get("list", base, {
    ...place,
    success: Schema.Array(Variable),
    error: problems()
  }).annotateMerge(
    operation("env.list", "read", "admin", "Read the variables of an environment, decrypted", { target })
  ),
  HttpApiEndpoint.put("set", base, {
    ...place,
    payload: Schema.Struct({ vars: Schema.Array(Variable).check(Schema.isMaxLength(mostVariables)) }),
    success: Schema.Struct({ count: Schema.Int }),
    error: bodyProblems(402)
  }).annotateMerge(
    operation("env.set", "write", "admin", "Set variables; others stay as they are", {
      sensitive: true,
      billing: true,
      target
    })
  ),
  HttpApiEndpoint.delete("delete", `${base}/:key`, {
    ...place,
    params: { ...projectParams, key: Schema.String },
    success: Deleted,
    error: problems(409)
  }).annotateMerge(operation("env.delete", "destructive", "admin", "Remove a variable", { target }))
)
