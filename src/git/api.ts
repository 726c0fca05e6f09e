/** Connections to the forges that repositories are at. */
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { Name } from "#schemas/names.ts"
import { Deleted, Id, idempotencyKey, orgParams, Timestamp } from "#src/api/definition/fields.ts"
import { group, operation } from "#src/api/definition/operation.ts"
import { bodyProblems, problems } from "#src/api/definition/problem.ts"
import { ConnectionKind } from "./connection-kinds.ts"

const Owner = Schema.String.check(
  Schema.isMaxLength(100),
  Schema.isPattern(/^[\w.-]+$/u, { expected: "word characters, dots and dashes" })
).annotate({
  description: "The account or group whose repositories it opens: the first part of a project's `git.repo`"
})
const ForgeUrl = Schema.String.check(
  Schema.isMaxLength(500),
  Schema.isPattern(/^https:\/\/[^\s/?#@]+(\/[\w./~-]*)?$/u, { expected: "an https:// URL" })
).annotate({ format: "uri", description: "Of the forge; left out: github.com or gitlab.com" })
const Token = Schema.NonEmptyString.check(
  Schema.isMaxLength(1_000),
  Schema.isPattern(/^[\x21-\x7e]+$/u, { expected: "a token without spaces" })
).annotate({ description: "Never shown again" })
const PrivateKey = Schema.NonEmptyString.check(Schema.isMaxLength(16_384)).annotate({
  description: "RSA key of the app, PEM; never shown again"
})
const NumberText = Schema.String.check(
  Schema.isMaxLength(40),
  Schema.isPattern(/^[\w.-]+$/u, { expected: "an id" })
)
const WebhookSecret = Schema.String.check(Schema.isMinLength(16), Schema.isMaxLength(200)).annotate({
  description: "What the forge proves its requests with; left out: one is made"
})

export const GitConnectionView = Schema.Struct({
  id: Id,
  name: Schema.String,
  kind: ConnectionKind,
  url: Schema.String.annotate({ format: "uri" }),
  owner: Schema.String,
  appId: Schema.NullOr(Schema.String),
  installationId: Schema.NullOr(Schema.String),
  webhookUrl: Schema.String.annotate({
    format: "uri",
    description: "Where the forge is to tell of pushes and pull requests"
  }),
  account: Schema.NullOr(Schema.String).annotate({ description: "As whom the forge knows the credential" }),
  checkedAt: Schema.NullOr(Timestamp),
  checkError: Schema.NullOr(Schema.String).annotate({
    description: "What was wrong when the forge was asked last"
  }),
  createdAt: Timestamp
}).annotate({ identifier: "GitConnection" })
export const GitConnectionList = Schema.Array(GitConnectionView)
export const NewGitConnection = Schema.Struct({
  ...GitConnectionView.fields,
  webhookSecret: Schema.String.annotate({ description: "For the forge. Shown this once" })
}).annotate({ identifier: "NewGitConnection" })

export const GitConnectionRequest = Schema.Struct({
  name: Name,
  kind: ConnectionKind,
  owner: Owner,
  url: Schema.optionalKey(ForgeUrl),
  token: Schema.optionalKey(Token),
  appId: Schema.optionalKey(NumberText),
  installationId: Schema.optionalKey(NumberText),
  privateKey: Schema.optionalKey(PrivateKey),
  webhookSecret: Schema.optionalKey(WebhookSecret)
}).annotate({ identifier: "GitConnectionRequest" })
export type GitConnectionRequest = typeof GitConnectionRequest.Type

const base = "/v1/orgs/:orgId/git-connections"
const one = `${base}/:connectionId` as const
const params = { ...orgParams, connectionId: Id }
const target = { type: "record", param: "connectionId", table: "git_connection" } as const

export const GitConnections = group(
  "gitConnections",
  "Connections to the forges that repositories are at: GitHub, GitLab, Gitea and Forgejo."
).add(
  HttpApiEndpoint.get("list", base, {
    params: orgParams,
    success: GitConnectionList,
    error: problems()
  }).annotateMerge(operation("gitConnections.list", "read", "admin", "List connections by name")),
  HttpApiEndpoint.post("create", base, {
    params: orgParams,
    headers: idempotencyKey,
    payload: GitConnectionRequest,
    success: NewGitConnection.pipe(HttpApiSchema.status(201)),
    error: bodyProblems()
  }).annotateMerge(
    operation("gitConnections.create", "write", "admin", "Connect repositories of a forge", {
      sensitive: true
    })
  ),
  HttpApiEndpoint.get("get", one, { params, success: GitConnectionView, error: problems() }).annotateMerge(
    operation("gitConnections.get", "read", "admin", "Read a connection", { target })
  ),
  HttpApiEndpoint.patch("update", one, {
    params,
    payload: Schema.Struct({
      name: Schema.optionalKey(Name),
      owner: Schema.optionalKey(Owner),
      token: Schema.optionalKey(Token),
      installationId: Schema.optionalKey(NumberText),
      privateKey: Schema.optionalKey(PrivateKey),
      webhookSecret: Schema.optionalKey(WebhookSecret)
    }),
    success: GitConnectionView,
    error: bodyProblems()
  }).annotateMerge(
    operation("gitConnections.update", "write", "admin", "Change a connection, or replace its credential", {
      sensitive: true,
      target
    })
  ),
  HttpApiEndpoint.delete("delete", one, { params, success: Deleted, error: problems() }).annotateMerge(
    operation(
      "gitConnections.delete",
      "destructive",
      "admin",
      "Delete a connection; its repositories are fetched no more, nor listened to",
      { sensitive: true, target }
    )
  ),
  HttpApiEndpoint.post("check", `${one}/check`, {
    params,
    success: GitConnectionView,
    error: problems()
  }).annotateMerge(
    operation("gitConnections.check", "write", "admin", "Ask the forge whether the credential works", {
      target
    })
  )
)
