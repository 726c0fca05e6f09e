/** Export, plan and apply: the pure parts of this folder, joined to the store. */
import { randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { findKind } from "#schemas/index.ts"
import type { Role } from "#schemas/kind.ts"
import type { Manifest } from "#schemas/manifest.ts"
import type { Change, SecretValues } from "#src/store/changes.ts"
import type { NameTaken, NotFound, Refused, RevisionConflict, StoreUnavailable } from "#src/store/errors.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import { Plans } from "#src/store/Plans.ts"
import { Resources } from "#src/store/Resources.ts"
import { type Actor, addressOf, type ResourceRecord } from "#src/store/records.ts"
import { exportManifest } from "./export.ts"
import { checkManifest, type Locate, type ManifestFault, type ParseResult, parseManifest } from "./parse.ts"
import {
  baseOf,
  type Current,
  makePlan,
  movedSince,
  type Plan,
  type PlannedChange,
  type Step
} from "./plan.ts"

/** The document has faults; nothing was done. */
export class InvalidManifest extends Data.TaggedError("InvalidManifest")<{
  readonly faults: ReadonlyArray<ManifestFault>
}> {}

/** The plan cannot be applied: it has blockers. */
export class Blocked extends Data.TaggedError("Blocked")<{ readonly blockers: Plan["blockers"] }> {}

/** What the plan was made for has changed since. */
export class StalePlan extends Data.TaggedError("StalePlan")<{ readonly addresses: ReadonlyArray<string> }> {}

/** There is no such plan any more. */
export class UnknownPlan extends Data.TaggedError("UnknownPlan")<{ readonly planId: string }> {}

/** The caller's role does not reach for something the plan does. */
export class RoleTooLow extends Data.TaggedError("RoleTooLow")<{
  readonly needed: Role
  readonly addresses: ReadonlyArray<string>
}> {}

export interface PlanView {
  readonly planId: string
  readonly organization: string
  readonly baseRevision: string
  readonly createdAt: string
  readonly expiresAt: string
  readonly summary: Readonly<Record<"create" | "update" | "replace" | "delete" | "noop" | "drift", number>>
  readonly changes: ReadonlyArray<PlannedChange>
  readonly drift: ReadonlyArray<{
    readonly address: string
    readonly differences: ResourceRecord["differences"]
    readonly observedAt: string | null
  }>
  readonly blockers: Plan["blockers"]
  readonly warnings: Plan["warnings"]
}

export interface AppliedView {
  readonly changes: ReadonlyArray<PlannedChange>
  readonly revision: string
  readonly resources: ReadonlyArray<{
    readonly uid: string
    readonly address: string
    readonly generation: number
  }>
}

export interface PlanRequest {
  readonly prune: boolean
  readonly confirm: ReadonlyArray<string>
}

type WriteError = NameTaken | NotFound | RevisionConflict | Refused

export class Manifests extends Context.Service<
  Manifests,
  {
    readonly get: (orgId: string, orgSlug: string) => Effect.Effect<Manifest, StoreUnavailable>
    /** Makes a plan from source text, stores it, and changes nothing else. */
    readonly plan: (
      orgId: string,
      orgSlug: string,
      source: string,
      request: PlanRequest
    ) => Effect.Effect<PlanView, InvalidManifest | StoreUnavailable>
    /** Carries a stored plan out, as it was reviewed, in one transaction. */
    readonly applyPlan: (
      orgId: string,
      planId: string,
      role: Role,
      actor: Actor
    ) => Effect.Effect<
      AppliedView,
      UnknownPlan | Blocked | StalePlan | RoleTooLow | WriteError | StoreUnavailable
    >
    /** Plans a document and carries that plan out at once. */
    readonly applyManifest: (
      orgId: string,
      orgSlug: string,
      document: unknown,
      locate: Locate,
      request: PlanRequest,
      role: Role,
      actor: Actor
    ) => Effect.Effect<
      AppliedView,
      InvalidManifest | Blocked | StalePlan | RoleTooLow | WriteError | StoreUnavailable
    >
  }
>()("svc/manifest/Manifests") {
  static readonly layer = Layer.effect(
    Manifests,
    Effect.gen(function* () {
      const resources = yield* Resources
      const plans = yield* Plans
      const fingerprint = yield* Fingerprint

      const current = (orgId: string) =>
        Effect.map(resources.all(orgId), (records) => ({ records, current: records.map(toCurrent) }))

      const make = Effect.fnUntraced(function* (
        orgId: string,
        orgSlug: string,
        parsed: ParseResult,
        request: PlanRequest
      ) {
        if (Result.isFailure(parsed)) return yield* new InvalidManifest({ faults: parsed.failure })
        const { manifest, locate } = parsed.success
        if (manifest.organization !== orgSlug) {
          const message = `names the organization "${manifest.organization}", and this request is for "${orgSlug}"`
          return yield* new InvalidManifest({
            faults: [{ pointer: "/organization", message, ...locate(["organization"]) }]
          })
        }
        const state = yield* current(orgId)
        return { ...state, plan: makePlan(manifest, state.current, locate, { ...request, fingerprint }) }
      })

      const carryOut = Effect.fnUntraced(function* (
        orgId: string,
        stored: StoredContent,
        role: Role,
        actor: Actor
      ) {
        if (stored.blockers.length > 0) return yield* new Blocked({ blockers: stored.blockers })
        const wanted = stored.changes.filter((change) => change.action !== "noop" && !isKept(change))
        const above = wanted.filter(({ requires }) => requires.role === "owner" && role !== "owner")
        if (above.length > 0) {
          return yield* new RoleTooLow({ needed: "owner", addresses: above.map(({ address }) => address) })
        }
        const steps = stored.steps.filter((step) => stored.prune || !step.prune)
        const written = yield* resources.write(orgId, toChanges(steps), actor).pipe(
          // Between the look and the write somebody else wrote.
          Effect.catchTag(["RevisionConflict", "NameTaken"], () =>
            Effect.flatMap(current(orgId), (now) =>
              Effect.fail(new StalePlan({ addresses: movedSince(stored.base, baseOf(now.current)) }))
            )
          )
        )
        const addresses = new Map(steps.map((step): [string, string] => [step.uid, step.address]))
        const applied: AppliedView = {
          changes: wanted,
          revision: written.at(-1)?.revision ?? "0",
          resources: written.map(({ uid, generation }) => ({
            uid,
            generation,
            address: addresses.get(uid) ?? ""
          }))
        }
        return applied
      })

      return Manifests.of({
        get: (orgId, orgSlug) =>
          Effect.map(current(orgId), (state) => exportManifest(orgSlug, state.current)),
        plan: Effect.fn("Manifests.plan")(function* (orgId, orgSlug, source, request) {
          const made = yield* make(orgId, orgSlug, parseManifest(source), request)
          const content: StoredContent = { ...made.plan, prune: request.prune }
          const stored = yield* plans.save(orgId, Redacted.make(JSON.stringify(content)))
          return view(orgSlug, stored, made.plan, made.records)
        }),
        applyPlan: Effect.fn("Manifests.applyPlan")(function* (orgId, planId, role, actor) {
          const loaded = yield* plans.load(orgId, planId)
          if (Option.isNone(loaded)) return yield* new UnknownPlan({ planId })
          const stored = yield* Effect.orDie(decodeStored(Redacted.value(loaded.value)))
          const now = yield* current(orgId)
          const moved = movedSince(stored.base, baseOf(now.current))
          if (moved.length > 0) return yield* new StalePlan({ addresses: moved })
          const applied = yield* carryOut(orgId, stored, role, actor)
          yield* plans.consume(orgId, planId)
          return applied
        }),
        applyManifest: Effect.fn("Manifests.applyManifest")(
          function* (orgId, orgSlug, document, locate, request, role, actor) {
            const made = yield* make(orgId, orgSlug, checkManifest(document, locate), request)
            return yield* carryOut(orgId, { ...made.plan, prune: request.prune }, role, actor)
          }
        )
      })
    })
  )
}

interface StoredContent extends Omit<Plan, "warnings"> {
  readonly prune: boolean
}

/** Written and read by this file only, and authenticated in between: JSON is enough. */
const decodeStored = Schema.decodeUnknownEffect(
  Schema.fromJsonString(
    Schema.declare((value: unknown): value is StoredContent => typeof value === "object" && value !== null)
  )
)

const isKept = (change: PlannedChange) => change.reasons.some(({ code }) => code === "needs_prune")

const toCurrent = (record: ResourceRecord): Current => ({
  uid: record.uid,
  kind: record.kind,
  projectId: record.projectId,
  project: record.project,
  environment: record.environment,
  name: record.name,
  spec: record.spec,
  generation: record.generation,
  protected: record.protected,
  deleting: record.deletionRequestedAt !== null
})

const toChanges = (steps: ReadonlyArray<Step>): ReadonlyArray<Change> => steps.map(toChange)

const toChange = (step: Step): Change => {
  const secrets: SecretValues = Object.fromEntries(
    Object.entries(step.secrets).map(([field, value]) => [field, Redacted.make(value)])
  )
  const expected = step.generation === null ? {} : { expectedGeneration: step.generation }
  switch (step.action) {
    case "delete":
      return { action: "delete", uid: step.uid, ...expected }
    case "update":
      return {
        action: "update",
        uid: step.uid,
        spec: step.spec ?? {},
        managedBy: "manifest",
        secrets,
        ...expected
      }
    case "create": {
      const generated = (findKind(step.kind)?.generated ?? []).map(
        (field) => [field, randomSecret()] as const
      )
      return {
        action: "create",
        uid: step.uid,
        kind: step.kind,
        projectId: step.projectId,
        environment: step.environment,
        name: step.name,
        parentUid: step.parentUid,
        spec: step.spec ?? {},
        managedBy: "manifest",
        secrets: { ...Object.fromEntries(generated), ...secrets }
      }
    }
  }
}

/** 192 random bits, in letters that need no escaping in a URL. */
const randomSecret = () => Redacted.make(randomBytes(24).toString("base64url"))

const view = (
  organization: string,
  stored: { readonly id: string; readonly createdAt: Date; readonly expiresAt: Date },
  plan: Plan,
  records: ReadonlyArray<ResourceRecord>
): PlanView => {
  const drift = records
    .filter(
      ({ conditions, deletionRequestedAt }) =>
        deletionRequestedAt === null &&
        conditions.some(({ type, status }) => type === "Drifted" && status === "true")
    )
    .map((record) => ({
      address: addressOf(record),
      differences: record.differences,
      observedAt: record.conditions.find(({ type }) => type === "Drifted")?.lastTransitionAt ?? null
    }))
  const count = (action: PlannedChange["action"]) =>
    plan.changes.filter((change) => change.action === action).length
  return {
    planId: stored.id,
    organization,
    baseRevision: records.reduce(
      (most, { revision }) => (BigInt(revision) > BigInt(most) ? revision : most),
      "0"
    ),
    createdAt: stored.createdAt.toISOString(),
    expiresAt: stored.expiresAt.toISOString(),
    summary: {
      create: count("create"),
      update: count("update"),
      replace: count("replace"),
      delete: count("delete"),
      noop: count("noop"),
      drift: drift.length
    },
    changes: plan.changes,
    drift,
    blockers: plan.blockers,
    warnings: plan.warnings
  }
}
