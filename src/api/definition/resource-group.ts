/**
 * The operations that every kind of resource has: list, create, read, change and delete. Paths, parameters, header
 * fields, problems, roles and sentences follow from the kind and from where it lives; a group says what differs.
 *
 *     const queues = resourceOperations({ group: "queues", kind: Queue, parent: inEnvironment, segment: "queues", param: "queueId", view: QueueView })
 *     export const Queues = group("queues", "...").add(queues.list(), queues.create({ ... }), queues.get(), ...)
 */
import * as Context from "effect/Context"
import * as HttpApiEndpoint from "effect/http-api/HttpApiEndpoint"
import * as HttpApiSchema from "effect/http-api/HttpApiSchema"
import * as Schema from "effect/Schema"
import { type Kind, kindInWords, type Role } from "#schemas/kind.ts"
import {
  Deleted,
  environmentQuery,
  Id,
  idempotencyKey,
  ifMatch,
  orgParams,
  projectParams,
  withEtag
} from "./fields.ts"
import { operation, type Risk, type Target } from "./operation.ts"
import { bodyProblems, problems } from "./problem.ts"

/** The kind of resource whose operation an endpoint is; of others, undefined. */
export const OperationOfKind = Context.Reference<string | undefined>("svc/api/OperationOfKind", {
  defaultValue: () => undefined
})

type Fields = Schema.Struct.Fields
type Body = Schema.Top & { readonly sseMode?: never }

/** Where resources are listed and created. */
interface Parent<Path extends `/${string}`, Params extends Fields, Query extends Fields> {
  readonly path: Path
  readonly params: Params
  readonly query?: Query
  /** What the path of a list names. */
  readonly lists: Target
  /** What the path of a creation names. */
  readonly creates: Target
}

const organizationPath = "/v1/orgs/:orgId"
const projectPath = `${organizationPath}/projects/:projectId` as const

export const inOrganization = {
  path: organizationPath,
  params: orgParams,
  lists: { type: "organization" },
  creates: { type: "organization" }
} as const
export const inProject = {
  path: projectPath,
  params: projectParams,
  lists: { type: "project" },
  creates: { type: "project" }
} as const
/** The path names the project; a query names the environment. */
export const inEnvironment = {
  path: projectPath,
  params: projectParams,
  query: environmentQuery,
  lists: { type: "project" },
  creates: { type: "environment" }
} as const

type Described = Parameters<typeof operation> extends [string, ...infer About] ? About : never

interface Said {
  /** For the specification, instead of the usual sentence. */
  readonly summary?: string
  readonly sensitive?: boolean
}

export const resourceOperations = <
  const Path extends `/${string}`,
  Params extends Fields,
  const Segment extends string,
  const Param extends string,
  View extends Schema.Top,
  Query extends Fields = never,
  IdSchema extends Schema.Top = typeof Id
>(of: {
  /** The first part of the operations' ids. */
  readonly group: string
  readonly kind: Kind
  /** The kind within a sentence, if not as its name says. */
  readonly noun?: string
  readonly parent: Parent<Path, Params, Query>
  /** The path's part for all of them, such as `queues`. */
  readonly segment: Segment
  /** The path's parameter for one of them, such as `queueId`. */
  readonly param: Param
  /** What the parameter is; an id unless said otherwise. */
  readonly id?: IdSchema
  /** What the path of one names, if that is not looked up by its id. */
  readonly target?: Target
  /** One of them as it is answered. */
  readonly view: View
}) => {
  const { kind, parent, param, view } = of
  const noun = of.noun ?? kindInWords(kind.name)
  const oneOf = `${/^[aeiou]/.test(noun) ? "an" : "a"} ${noun}`
  const described = (name: string, ...about: Described) =>
    operation(`${of.group}.${name}`, ...about).pipe(Context.add(OperationOfKind, kind.name))
  const all = `${parent.path}/${of.segment}` as `${Path}/${Segment}`
  const one = `${all}/:${param}` as `${Path}/${Segment}/:${Param}`
  const params = { ...parent.params, [param]: of.id ?? Id } as Params & { readonly [K in Param]: IdSchema }
  const target: Target = of.target ?? { type: "resource", param, kind: kind.name }
  return {
    /** The path of all of them. */
    all,
    /** The path of one of them, its parameters and what it names, for operations of the kind's own. */
    one,
    params,
    target,
    list: ({ summary = `List ${noun}s by name` }: Pick<Said, "summary"> = {}) =>
      HttpApiEndpoint.get("list", all, {
        params: parent.params,
        query: parent.query,
        success: Schema.Array(view),
        error: problems()
      }).annotateMerge(described("list", "read", "member", summary, { target: parent.lists })),
    /** It needs active billing, takes an `Idempotency-Key`, and answers `success`. */
    create: <Payload extends Body, Success extends Schema.Top>({
      payload,
      success,
      status = 201,
      risk = "write",
      role = "admin",
      sensitive = false,
      summary = `Create ${oneOf}`
    }: Said & {
      readonly payload: Payload
      readonly success: Success
      /** 202: it is answered before there is anything to see. */
      readonly status?: 201 | 202
      readonly risk?: Risk
      readonly role?: Role
    }) =>
      HttpApiEndpoint.post("create", all, {
        params: parent.params,
        query: parent.query,
        headers: idempotencyKey,
        payload,
        success: success.pipe(HttpApiSchema.status(status)),
        error: bodyProblems(402)
      }).annotateMerge(
        described("create", risk, role, summary, { sensitive, billing: true, target: parent.creates })
      ),
    /** With the ETag that `update` and `delete` take. */
    get: ({ summary = `Read ${oneOf}` }: Pick<Said, "summary"> = {}) =>
      HttpApiEndpoint.get("get", one, { params, success: withEtag(view), error: problems() }).annotateMerge(
        described("get", "read", "member", summary, { target })
      ),
    /** Fields that the body leaves out stay as they are, so every field of `payload` is optional. */
    update: <Payload extends Body>({
      payload,
      billing = true,
      sensitive = false,
      summary = `Change ${oneOf}`
    }: Said & { readonly payload: Payload; readonly billing?: boolean }) =>
      HttpApiEndpoint.patch("update", one, {
        params,
        headers: ifMatch,
        payload,
        success: withEtag(view),
        error: billing ? bodyProblems(402, 412) : bodyProblems(412)
      }).annotateMerge(described("update", "write", "admin", summary, { sensitive, billing, target })),
    /** By the role that the kind demands; what only owners may delete is sensitive. */
    delete: ({ summary = `Delete ${oneOf}` }: Pick<Said, "summary"> = {}) =>
      HttpApiEndpoint.delete("delete", one, {
        params,
        headers: ifMatch,
        success: Deleted,
        error: problems(412)
      }).annotateMerge(
        described("delete", "destructive", kind.deleteRole, summary, {
          sensitive: kind.deleteRole === "owner",
          target
        })
      )
  }
}
