/**
 * Handlers of the operations that every kind of resource has (`definition/resource-group.ts`). What is common to all
 * kinds is done here: looking up, conditions, defaults, billing, audit, answers. A kind says what is special to it.
 *
 *     const queues = yield* resourceHandlers(Queue, { view: QueueView, viewer: () => Effect.succeed(queueView) })
 *     handlersOf(Api.groups.queues)({ list: queues.list, get: queues.get, delete: queues.delete(), ... })
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { Json, Kind } from "#schemas/kind.ts"
import { placed, regionFault } from "#schemas/placement.ts"
import type { CreateChange, SecretValues, Written } from "#src/store/change.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ListedRecord, ResourceRecord } from "#src/store/records.ts"
import type { Referring } from "#src/store/reference-checks.ts"
import { answer } from "./answer.ts"
import { RequestScope } from "./definition/scope.ts"
import { faultsOf } from "./failure.ts"
import { billedLate, billing } from "./handler.ts"
import { fromStore, invalid, type Problem, unreadable } from "./problem.ts"
import { Regions } from "./Regions.ts"
import { targetEnvironment, targetProject, targetRecord } from "./target.ts"
import { viewAll } from "./views.ts"
import { amend, createdBefore, remove, stored } from "./writing.ts"

/** Where a resource lives. */
export interface Place {
  readonly projectId: string | null
  /** Slug of the project. */
  readonly project: string | null
  readonly environment: string | null
  /** What it goes with when that is deleted. */
  readonly parentUid: string | null
}

/** What a request asks to be created. */
export interface Creation {
  readonly name: string
  /** Defaults are filled in. */
  readonly spec: unknown
  readonly secrets?: SecretValues
  /** Where it is to live, if not in what the path names. */
  readonly place?: Place
  /** What is created together with it. */
  readonly parts?: ReadonlyArray<CreateChange>
  /** The status of the answer, 201 unless said otherwise. */
  readonly outcome?: 201 | 202
  /** Takes back what was prepared for it outside of the store of resources, when it is not created. */
  readonly undo?: Effect.Effect<void>
}

/** What a kind's own part of a handler may ask for. */
type Needs = RequestScope | Resources

interface Options<View extends Schema.Top, Request> {
  /** How one of them is answered. */
  readonly view: View
  /** Looks up what the views of `records` need besides these, at once for all, and answers how one is viewed. */
  readonly viewer: (
    records: ReadonlyArray<ListedRecord>
  ) => Effect.Effect<(record: ListedRecord) => View["Encoded"], Problem, Needs>
  /** What the path names, if the gate did not look it up as a resource. */
  readonly target?: (request: Request) => Effect.Effect<ResourceRecord, Problem, Needs>
  /** What a caller is told whose name for it is taken. */
  readonly taken?: (name: string) => (failure: Problem) => Problem
}

/** `Request` is what the kind's own `target` reads. */
export const resourceHandlers = Effect.fnUntraced(function* <
  Spec extends Json,
  View extends Schema.Top,
  Request = unknown
>(kind: Kind<string, Spec>, { view, viewer, target = () => targetRecord, taken }: Options<View, Request>) {
  const resources = yield* Resources
  const regions = yield* Regions
  const decode = Schema.decodeUnknownEffect(kind.spec, { errors: "all" })
  /** Names also what the fields of a body do not tell each by itself. `before` is what is there already. */
  const complete = Effect.fnUntraced(function* (asked: unknown, before?: Spec) {
    const spec = yield* Effect.mapError(decode(placed(kind, asked, regions, before)), ({ issue }) =>
      invalid(faultsOf("", issue))
    )
    const fault = regionFault(kind, spec, regions, before)
    if (fault !== undefined) return yield* invalid([{ pointer: `/${fault.field}`, message: fault.message }])
    return spec
  })

  /** Fails with what `spec` begins to name and is not there. */
  const missing = Effect.fnUntraced(function* (resource: Referring, spec: Spec) {
    const { orgId } = yield* RequestScope
    const refused = yield* Effect.mapError(resources.missing(orgId, resource, spec), fromStore)
    if (refused !== undefined) return yield* fromStore(refused)
  })

  const all = Schema.Array(view)
  const viewsOf = (records: ReadonlyArray<ListedRecord>) =>
    Effect.flatMap(viewer(records), (one) => viewAll(records, one))
  const viewOf = Effect.fnUntraced(function* (record: ResourceRecord) {
    const [found] = yield* viewsOf([record])
    return found ?? (yield* unreadable)
  })
  const answered = (record: ResourceRecord) =>
    Effect.map(viewOf(record), (found) => answer(view, found, record))

  const list = Effect.fnUntraced(function* () {
    const { orgId } = yield* RequestScope
    const { projectId, environment } = kind.scope === "organization" ? noProject : yield* targetProject
    const records = yield* Effect.mapError(
      resources.showKind(orgId, kind.name, projectId, environment),
      fromStore
    )
    return answer(all, yield* viewsOf(records))
  })

  const write = Effect.fnUntraced(function* (creation: Creation) {
    const { orgId, caller, reservation } = yield* RequestScope
    const { name, secrets, parts = [], outcome = 201, undo = Effect.void } = creation
    const place = creation.place ?? (yield* placeOf(kind.scope))
    const spec = yield* complete(creation.spec)
    const change = {
      action: "create",
      uid: reservation.uid,
      kind: kind.name,
      projectId: place.projectId,
      environment: place.environment,
      name,
      parentUid: place.parentUid,
      spec,
      managedBy: "api",
      ...(secrets === undefined ? {} : { secrets })
    } as const
    const [written] = yield* billing.pipe(
      Effect.andThen(stored(resources.write(orgId, [change, ...parts], { ...caller.actor, outcome }))),
      validFirst(missing(change, spec)),
      Effect.mapError((failure) => taken?.(name)(failure) ?? failure),
      Effect.onError(() => undo)
    )
    if (written === undefined) return yield* Effect.die(new Error("What was to be created was not written"))
    return asCreated(orgId, place, change, written)
  })

  /**
   * Creates what `describe` says, which also checks whether it can be, and answers it with `show`. What an earlier try
   * of the request created is answered as it is now, and nothing is asked again.
   */
  const createAnd = <Req, A, R>(
    describe: (request: Req) => Effect.Effect<Creation, Problem, Needs>,
    show: (record: ResourceRecord) => Effect.Effect<A, Problem, R>
  ) =>
    billedLate(
      Effect.fnUntraced(function* (request: Req) {
        const before = yield* createdBefore
        return yield* show(before ?? (yield* Effect.flatMap(describe(request), write)))
      })
    )

  return {
    /** The view of a record, and an answer with it and its ETag, for operations of the kind's own. */
    viewOf,
    answered,
    list,
    get: (request: Request) => Effect.flatMap(target(request), answered),
    createAnd,
    create: <Req>(describe: (request: Req) => Effect.Effect<Creation, Problem, Needs>) =>
      createAnd(describe, viewOf),
    /**
     * `describe` checks what is asked for and answers what becomes of the specification that is there, which is asked
     * again when somebody else was faster. No plan prunes what the API changed, unless it `keepsManager`: for what no
     * manifest tells of.
     */
    update: <Req extends Request>(
      describe: (
        request: Req,
        record: ResourceRecord
      ) => Effect.Effect<(current: Spec) => unknown, Problem, Needs>,
      { keepsManager = false } = {}
    ) =>
      billedLate(
        Effect.fnUntraced(function* (request: Req) {
          const record = yield* target(request)
          const change = yield* describe(request, record)
          const wanted = Effect.fnUntraced(function* (base: ResourceRecord) {
            const current = yield* Effect.orDie(decode(base.spec))
            // Where somebody else was faster it is another record, of which something else may have to hold.
            const next = base === record ? change : yield* describe(request, base)
            return yield* complete(next(current), current)
          })
          const changed = amend(record, (base) =>
            Effect.map(wanted(base), (spec) =>
              keepsManager ? { spec } : { spec, managedBy: "api" as const }
            )
          )
          const after = yield* Effect.andThen(billing, changed).pipe(
            validFirst(Effect.flatMap(wanted(record), (spec) => missing(record, spec)))
          )
          return yield* answered(after)
        })
      ),
    /** `check` says whether it may go. */
    delete: (check: (record: ResourceRecord) => Effect.Effect<void, Problem, Needs> = () => Effect.void) =>
      Effect.fnUntraced(function* (request: Request) {
        const record = yield* target(request)
        yield* check(record)
        return yield* remove(record)
      })
  }
})

/** Refusals that come after faults of the content in the order of checks (authorize.ts). */
const afterValidity: ReadonlySet<number> = new Set([402, 409, 412])

/**
 * What a request is refused for, unless `check` finds a fault of its content: that is told first. A request that is not
 * refused is not checked twice, since its write checks the same.
 */
const validFirst =
  <R2>(check: Effect.Effect<void, Problem, R2>) =>
  <A, R>(self: Effect.Effect<A, Problem, R>): Effect.Effect<A, Problem, R | R2> =>
    Effect.catchIf(
      self,
      ({ status }) => afterValidity.has(status),
      (refusal) => Effect.andThen(check, Effect.fail(refusal))
    )

const noProject = { projectId: null, environment: undefined }

/** What the path of a creation names. */
const placeOf = (scope: Kind["scope"]): Effect.Effect<Place, never, RequestScope> => {
  switch (scope) {
    case "organization":
      return Effect.succeed({ projectId: null, project: null, environment: null, parentUid: null })
    case "project":
      return Effect.map(targetProject, ({ projectId, project }) => ({
        projectId,
        project,
        environment: null,
        parentUid: projectId
      }))
    case "environment":
      return Effect.map(targetEnvironment, ({ environmentUid, ...place }) => ({
        ...place,
        parentUid: environmentUid
      }))
  }
}

/** The record of what was just written, before any engine looked at it. */
const asCreated = (
  orgId: string,
  { project }: Place,
  { action: _, ...change }: CreateChange,
  { generation, revision, createdAt, updatedAt }: Written
): ResourceRecord => ({
  ...change,
  orgId,
  project: change.kind === "Project" ? change.name : project,
  generation,
  status: null,
  observedGeneration: 0,
  phase: "pending",
  phaseSince: createdAt,
  conditions: [],
  differences: [],
  revision,
  protected: false,
  deletionRequestedAt: null,
  createdAt,
  updatedAt,
  attempt: 0,
  nextAttemptAt: null,
  lastError: null,
  handledRetry: null,
  waitingOn: null
})
