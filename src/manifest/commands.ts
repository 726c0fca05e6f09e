/** `svc plan`, `svc apply`, `svc export`. */
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { asJson, confirmName, connection, online, readStdin, waiting, yes } from "#src/cli/flags.ts"
import { readTextFile } from "#src/cli/invocation.ts"
import { exact, json, out, say, sayText } from "#src/cli/output.ts"
import { detachable, type Goal, waitFor } from "#src/cli/wait.ts"
import { effects, renderPlan } from "./plan-text.ts"

const file = Flag.String("file").pipe(
  Flag.withAlias("f"),
  Flag.withDescription(
    "Manifest in YAML or JSON, - for standard input (default svc.manifest.yaml, or what svc.yaml names)"
  ),
  Flag.optional
)
const prune = Flag.Boolean("prune").pipe(
  Flag.withDescription("Delete what a present list no longer names"),
  Flag.withDefault(false)
)
const confirm = Flag.String("confirm").pipe(
  Flag.withDescription("Project whose mass deletion is meant; may be repeated"),
  Flag.atMost(100)
)

const readManifest = Effect.fnUntraced(function* (named: Option.Option<string>) {
  const { login } = yield* Client
  const name = Option.getOrElse(named, () => login.manifest)
  if (name === "-") return yield* readStdin
  return yield* Effect.mapError(readTextFile(name), ({ message }) =>
    failure(`Cannot read the manifest ${name}: ${message}`, exitCodes.usage)
  )
})

interface PlanFlags {
  readonly prune: boolean
  readonly confirm: ReadonlyArray<string>
}
export const makePlan = Effect.fnUntraced(function* (source: string, flags: PlanFlags) {
  const { asMember, org } = yield* Client
  return yield* call(
    asMember.manifest.plan({
      params: { orgId: org },
      query: { prune: flags.prune, ...(flags.confirm.length > 0 ? { confirm: flags.confirm } : {}) },
      headers: {},
      payload: source
    })
  )
})

const some = (addresses: ReadonlyArray<string>): string =>
  addresses.length <= 10
    ? addresses.join(", ")
    : `${addresses.slice(0, 10).join(", ")} and ${addresses.length - 10} more`

const showPlan = Effect.fnUntraced(function* (planId: string, asJson: boolean) {
  const { asMember, org } = yield* Client
  const saved = yield* call(asMember.manifest.getPlan({ params: { orgId: org, planId } }))
  if (asJson) return yield* json(saved)
  yield* out(renderPlan(saved))
  if (saved.appliedAt !== null) return yield* say(`It was applied at ${saved.appliedAt}`)
  if (saved.moved.length === 0) return yield* say(`Apply it as it is with: svc apply --plan ${planId}`)
  yield* say(`It cannot be applied any more, because this has changed since: ${some(saved.moved)}`)
})

export const plan = Command.make(
  "plan",
  {
    ...connection,
    file,
    prune,
    confirm,
    json: asJson,
    plan: Flag.String("plan").pipe(
      Flag.withDescription("Show this plan, which was made before, instead of making one"),
      Flag.optional
    ),
    detailed: Flag.Boolean("detailed-exitcode").pipe(
      Flag.withDescription("Exit with 0 when nothing would change, 2 when something would, 1 on errors"),
      Flag.withDefault(false)
    )
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        if (Option.isSome(flags.plan)) return yield* showPlan(flags.plan.value, flags.json)
        const made = yield* Effect.flatMap(readManifest(flags.file), (source) =>
          makePlan(source, flags)
        ).pipe(
          // 2 says that there are changes, and nothing else.
          Effect.mapError((error) =>
            flags.detailed && error.exitCode === exitCodes.usage ? failure(error.message) : error
          )
        )
        yield* flags.json ? json(made) : out(renderPlan(made))
        if (made.blockers.length > 0) return yield* failure("The plan is blocked")
        const changes = effects(made.changes).length > 0
        if (changes && !flags.json) yield* say(`Apply it as it is with: svc apply --plan ${made.planId}`)
        if (flags.detailed && changes) return yield* failure("", exitCodes.usage)
      })
    )
).pipe(Command.withDescription("Show what applying a manifest would change"))

export const applyPlan = Effect.fnUntraced(function* (planId: string, asOwner: boolean) {
  const client = yield* Client
  const { manifest } = asOwner ? client.asOwner : client.asMember
  return yield* call(
    manifest.apply({ params: { orgId: client.org }, headers: {}, payload: JSON.stringify({ planId }) })
  )
})

/** What waiting for an applied plan means. */
export const goalsOf = (applied: {
  readonly changes: ReadonlyArray<{ readonly address: string; readonly action: string }>
  readonly resources: ReadonlyArray<{
    readonly uid: string
    readonly address: string
    readonly generation: number
  }>
}): ReadonlyMap<string, Goal> => {
  const deleted = new Set(
    applied.changes.filter(({ action }) => action === "delete").map(({ address }) => address)
  )
  return new Map(
    applied.resources.map(({ uid, address, generation }) => [
      uid,
      { address, generation: deleted.has(address) ? null : generation }
    ])
  )
}

export const apply = Command.make(
  "apply",
  {
    ...connection,
    ...waiting,
    file,
    prune,
    confirm,
    yes,
    json: asJson,
    plan: Flag.String("plan").pipe(Flag.withDescription("Apply this plan as it was reviewed"), Flag.optional)
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const planned = Option.isSome(flags.plan)
          ? undefined
          : yield* makePlan(yield* readManifest(flags.file), flags)
        if (planned !== undefined) {
          yield* sayText(renderPlan(planned))
          if (planned.blockers.length > 0) return yield* failure("The plan is blocked")
          const real = effects(planned.changes)
          if (real.length === 0) {
            return yield* flags.json ? json({ changes: [], resources: [] }) : Effect.void
          }
          const destroyed = real.filter(({ action }) => action === "replace" || action === "delete")
          if (destroyed.length > 0) {
            yield* confirmName(
              `This destroys with all data: ${some(destroyed.map(({ address }) => address))}.`,
              planned.organization,
              flags.yes
            )
          }
        }
        const id = planned?.planId ?? Option.getOrElse(flags.plan, () => "")
        // A key cannot delete what only an owner may: then the owner's session speaks.
        const applied = yield* applyPlan(
          id,
          planned === undefined || effects(planned.changes).some(({ requires }) => requires.role === "owner")
        )
        if (flags.json) yield* json(applied)
        if (flags.wait) yield* detachable(waitFor(goalsOf(applied), flags.timeout))
        else
          yield* say(`Stored; ${applied.resources.length} resources converge. Watch with: svc status --watch`)
      })
    )
).pipe(Command.withDescription("Make an organization what a manifest says"))

export const exportCommand = Command.make("export", { ...connection, json: asJson }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const manifest = yield* call(asMember.manifest.get({ params: { orgId: org } }))
      const value: unknown = typeof manifest === "string" ? JSON.parse(manifest) : manifest
      if (flags.json) return yield* json(value)
      const { stringify } = yield* Effect.promise(() => import("yaml"))
      yield* exact(stringify(value, { lineWidth: 0, aliasDuplicateObjects: false }).trimEnd())
    })
  )
).pipe(Command.withDescription("Print the current state as a manifest; secret values are masked"))

const schema = Command.make("schema", {}, () =>
  Effect.flatMap(
    Effect.promise(() => import("./json-schema.ts")),
    ({ manifestJsonSchema }) => json(manifestJsonSchema())
  )
).pipe(
  Command.withDescription("Print the JSON Schema of the manifest, for editors"),
  Command.withExamples([
    {
      command: "svc manifest schema",
      description: "In a file beside the manifest, whose first line is # yaml-language-server: $schema=FILE"
    }
  ])
)

export const manifest = Command.make("manifest").pipe(
  Command.withDescription("What a manifest can say"),
  Command.withSubcommands([schema])
)
