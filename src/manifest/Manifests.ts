/** Export, plan and apply: the pure parts of this folder, joined to the store. */
import { isDeepStrictEqual } from "node:util"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { isTooDeep } from "#schemas/json-depth.ts"
import type { Role } from "#schemas/kind.ts"
import type { Manifest } from "#schemas/manifest.ts"
import { Regions } from "#src/api/Regions.ts"
import type { ManifestFault, Position } from "#src/api/source-location.ts"
import type { Written } from "#src/store/change.ts"
import type { NameTaken, NotFound, Refused, RevisionConflict } from "#src/store/errors.ts"
import { Fingerprint } from "#src/store/Fingerprint.ts"
import type { Reservation } from "#src/store/Reservation.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor, ResourceRecord } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Current, Plan, Step } from "./change.ts"
import { digestOf } from "./digest.ts"
import { exportManifest } from "./export.ts"
import { Plans } from "./Plans.ts"
import { planInSteps } from "./plan.ts"
import { Reader, type ReaderBusy } from "./Reader.ts"
import type { Source } from "./reading.ts"
import { baseOf, movedSince } from "./state.ts"
import { toChanges } from "./to-changes.ts"
import {
  type AppliedView,
  type Compared,
  type Comparison,
  comparison,
  type PlanView,
  type SavedPlanView,
  view
} from "./view.ts"

/** The text is not in the language that it says it is in. */
export class MalformedSource extends Data.TaggedError("MalformedSource")<{ readonly message: string }> {}

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

/** The text of a request, read. */
export interface Opened {
  readonly source: Source
  /** What is around the document, which is left out. */
  readonly envelope: unknown
  /** Undefined: there is none. */
  readonly document: Manifest | undefined
  readonly faults: ReadonlyArray<ManifestFault>
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
    /** Reads a request's text up to the manifest in it, which may still have faults. */
    readonly open: (source: Source) => Effect.Effect<Opened, MalformedSource | InvalidManifest | ReaderBusy>
    /** What a plan would be. Nothing is stored. */
    readonly compare: (
      orgId: string,
      orgSlug: string,
      opened: Opened,
      request: PlanRequest
    ) => Effect.Effect<Compared, InvalidManifest | StoreUnavailable>
    /** Makes a plan, stores it under `id`, and changes nothing else. */
    readonly plan: (
      id: string,
      orgId: string,
      orgSlug: string,
      opened: Opened,
      request: PlanRequest
    ) => Effect.Effect<PlanView & Compared, InvalidManifest | StoreUnavailable>
    /** A stored plan as it was made, also when it was applied, for as long as it is kept. */
    readonly savedPlan: (
      orgId: string,
      orgSlug: string,
      planId: string
    ) => Effect.Effect<SavedPlanView, UnknownPlan | StoreUnavailable>
    /**
     * Carries a stored plan out, as it was reviewed, in one transaction. `again`: the same request may have done so
     * before; what it then did is answered.
     */
    readonly applyPlan: (
      orgId: string,
      planId: string,
      role: Role,
      actor: Actor,
      again: boolean
    ) => Effect.Effect<
      AppliedView,
      UnknownPlan | Blocked | StalePlan | RoleTooLow | WriteError | StoreUnavailable
    >
    /**
     * Plans a document and carries that plan out at once. A later try of the request answers what an earlier one did, as
     * long as that is so still.
     */
    readonly applyManifest: (
      orgId: string,
      orgSlug: string,
      opened: Opened,
      request: PlanRequest,
      role: Role,
      actor: Actor,
      reservation: Reservation
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
      const regions = yield* Regions
      const reader = yield* Reader

      const current = (orgId: string) =>
        Effect.map(resources.all(orgId), (records) => ({ records, current: records.map(toCurrent) }))

      const open = Effect.fn("Manifests.open")(function* (source: Source) {
        const reading = yield* reader.read(source)
        switch (reading._tag) {
          case "Malformed":
            return yield* new MalformedSource({ message: reading.message })
          case "Unreadable":
            return yield* new InvalidManifest({ faults: reading.faults })
          case "Read":
            return { source, ...reading }
        }
      })

      /** The same, with the places of what they are about. */
      const placed = Effect.fnUntraced(function* <A extends { readonly pointer: string } & Position>(
        source: Source,
        notes: ReadonlyArray<A>
      ) {
        const pointed = notes.filter(({ pointer }) => pointer !== "")
        const positions = yield* reader.locate(
          source,
          pointed.map(({ pointer }) => pointer)
        )
        const found = new Map(pointed.map((note, index): [A, Position] => [note, positions[index] ?? {}]))
        return notes.map((note) => ({ ...note, ...found.get(note) }))
      })

      const make = Effect.fnUntraced(function* (
        orgId: string,
        orgSlug: string,
        { source, document, faults }: Opened,
        request: PlanRequest
      ) {
        if (document === undefined) return yield* new InvalidManifest({ faults })
        if (document.organization !== orgSlug) {
          const message = `names the organization "${document.organization}", and this request is for "${orgSlug}"`
          return yield* new InvalidManifest({
            faults: yield* placed(source, [{ pointer: "/organization", message }])
          })
        }
        const state = yield* current(orgId)
        const plan = yield* inTurns(
          planInSteps(document, state.current, { ...request, fingerprint, regions })
        )
        const blockers = yield* placed(source, plan.blockers)
        const warnings = yield* placed(source, plan.warnings)
        return { ...state, plan: { ...plan, blockers, warnings } }
      })

      const carryOut = Effect.fnUntraced(function* (
        orgId: string,
        stored: Omit<Plan, "warnings">,
        role: Role,
        actor: Actor,
        before: ReadonlyArray<Outcome> | undefined
      ) {
        if (stored.blockers.length > 0) return yield* new Blocked({ blockers: stored.blockers })
        const wanted = stored.changes.filter(({ action }) => action !== "noop")
        const above = wanted.filter(({ requires }) => requires.role === "owner" && role !== "owner")
        if (above.length > 0) {
          return yield* new RoleTooLow({ needed: "owner", addresses: above.map(({ address }) => address) })
        }
        const { steps } = stored
        const write = resources.write(orgId, toChanges(steps), actor).pipe(
          // Between the look and the write somebody else wrote.
          Effect.catchTag(["RevisionConflict", "NameTaken", "Refused"], (conflict) =>
            Effect.flatMap(current(orgId), (now) => {
              const moved = movedSince(stored.base, baseOf(now.current))
              if (conflict._tag === "Refused")
                // The plan has looked at references: these have changed since. Other rules are the store's alone.
                return Effect.fail(
                  conflict.faults !== undefined && moved.length > 0
                    ? new StalePlan({ addresses: moved })
                    : conflict
                )
              // It may be as it was by now; then all that the conflict can have been about is named.
              const addresses = moved.length > 0 ? moved : conflicting(steps, conflict._tag)
              return Effect.fail(new StalePlan({ addresses }))
            })
          )
        )
        const written: ReadonlyArray<Outcome> = before ?? (yield* write)
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

      /** Undefined: there is no such plan any more, or a release made it whose plans this one reads in another way. */
      const load = Effect.fnUntraced(function* (orgId: string, planId: string, again: boolean) {
        const loaded = yield* plans.load(orgId, planId, again)
        if (Option.isNone(loaded)) return undefined
        const content = yield* Effect.option(decodeStored(Redacted.value(loaded.value.content)))
        return Option.isNone(content) ? undefined : { ...loaded.value, content: content.value }
      })

      return Manifests.of({
        get: (orgId, orgSlug) =>
          Effect.map(current(orgId), (state) => exportManifest(orgSlug, state.current)),
        open,
        compare: Effect.fn("Manifests.compare")(function* (orgId, orgSlug, opened, request) {
          const made = yield* make(orgId, orgSlug, opened, request)
          return { ...comparison(orgSlug, made.plan, made.records), digest: digestOf(made.plan, fingerprint) }
        }),
        plan: Effect.fn("Manifests.plan")(function* (id, orgId, orgSlug, opened, request) {
          const made = yield* make(orgId, orgSlug, opened, request)
          const compared = comparison(orgSlug, made.plan, made.records)
          const { drift, baseRevision } = compared
          const content: StoredContent = { ...made.plan, seen: { drift, baseRevision }, format }
          const stored = yield* plans.save(orgId, id, Redacted.make(JSON.stringify(content)))
          return { ...view(stored, compared), digest: digestOf(made.plan, fingerprint) }
        }),
        savedPlan: Effect.fn("Manifests.savedPlan")(function* (orgId, orgSlug, planId) {
          const stored = yield* load(orgId, planId, true)
          if (stored === undefined) return yield* new UnknownPlan({ planId })
          const now = yield* current(orgId)
          const { content, appliedAt } = stored
          const compared = comparison(orgSlug, { warnings: [], ...content }, now.records)
          return {
            ...view(stored, { ...compared, ...content.seen }),
            appliedAt: appliedAt?.toISOString() ?? null,
            // What an applied plan has changed is no news.
            moved: appliedAt === null ? movedSince(content.base, baseOf(now.current)) : []
          }
        }),
        applyPlan: Effect.fn("Manifests.applyPlan")(function* (orgId, planId, role, actor, again) {
          const stored = (yield* load(orgId, planId, again))?.content
          if (stored === undefined) return yield* new UnknownPlan({ planId })
          const now = yield* current(orgId)
          const before = again ? outcomeOf(stored.steps, now.records) : undefined
          const moved = before === undefined ? movedSince(stored.base, baseOf(now.current)) : []
          if (moved.length > 0) return yield* new StalePlan({ addresses: moved })
          const applied = yield* carryOut(orgId, stored, role, actor, before)
          yield* plans.consume(orgId, planId)
          return applied
        }),
        applyManifest: Effect.fn("Manifests.applyManifest")(function* (
          orgId,
          orgSlug,
          opened,
          request,
          role,
          actor,
          { uid, keyed, again }
        ) {
          const earlier = again ? (yield* load(orgId, uid, true))?.content : undefined
          if (earlier !== undefined) {
            const before = outcomeOf(earlier.steps, (yield* current(orgId)).records)
            if (before !== undefined) return yield* carryOut(orgId, earlier, role, actor, before)
          }
          const made = yield* make(orgId, orgSlug, opened, request)
          const content: StoredContent = { ...made.plan, format }
          // Kept for a later try. What is refused will be planned anew.
          if (keyed && content.blockers.length === 0)
            yield* plans.save(orgId, uid, Redacted.make(JSON.stringify(content)))
          return yield* carryOut(orgId, content, role, actor, undefined)
        })
      })
    })
  ).pipe(Layer.provide(Reader.layer))
}

/** Lets others have their turn between the steps. */
const inTurns = Effect.fnUntraced(function* <A>(steps: Generator<void, A>) {
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
    yield* Effect.yieldNow
  }
})

type Outcome = Pick<Written, "uid" | "generation" | "revision">

/** What the steps came to, if what they ask for is there. */
const outcomeOf = (steps: ReadonlyArray<Step>, records: ReadonlyArray<ResourceRecord>) => {
  const found = new Map(records.map((record) => [record.uid, record]))
  const made: Array<Outcome> = []
  for (const { action, uid, spec, generation } of steps) {
    const record = found.get(uid)
    const holds =
      action === "delete"
        ? record === undefined || record.deletionRequestedAt !== null
        : record !== undefined && (action === "create" || isDeepStrictEqual(record.spec, spec ?? {}))
    if (!holds) return undefined
    made.push(record ?? { uid, generation: generation ?? 1, revision: "0" })
  }
  return made
}

/** What a conflict of that sort can have been about. */
const conflicting = (steps: ReadonlyArray<Step>, conflict: "NameTaken" | "RevisionConflict") =>
  steps
    .filter(({ action }) => (action === "create") === (conflict === "NameTaken"))
    .map(({ address }) => address)

/**
 * How the content of a plan is read. A release that reads it in another way has another number, and asks for a new plan
 * where it finds an old one: before 2, the steps held deletions that only prune was to carry out.
 */
const format = 2

interface StoredContent extends Omit<Plan, "warnings"> {
  readonly warnings?: Plan["warnings"]
  /** What the plan was shown with. None: it was applied at once, or a former release made it. */
  readonly seen?: Pick<Comparison, "drift" | "baseRevision">
  readonly format: typeof format
}

/** Written and read by this file only, and authenticated in between: JSON is enough. */
const decodeStored = Schema.decodeUnknownEffect(
  Schema.fromJsonString(
    Schema.declare(
      (value: unknown): value is StoredContent =>
        typeof value === "object" && value !== null && "format" in value && value.format === format
    )
  )
)

const toCurrent = (record: ResourceRecord): Current => ({
  uid: record.uid,
  kind: record.kind,
  projectId: record.projectId,
  project: record.project,
  environment: record.environment,
  name: record.name,
  parentUid: record.parentUid,
  // What is too deep cannot be compared or written out: no manifest matches it, and none shows it.
  spec: isTooDeep(record.spec) ? null : record.spec,
  generation: record.generation,
  protected: record.protected,
  deleting: record.deletionRequestedAt !== null
})
