/** `svc status`, `show`, `wait`, `events`, `diff`: how everything is doing. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { address, allResources, asJson, connection, online, resolve, waiting } from "#src/cli/flags.ts"
import { facts, json, jsonLine, out, paint, say, table } from "#src/cli/output.ts"
import { visibleLine } from "#src/cli/visible.ts"
import { detachable, goalsNow, waitFor } from "#src/cli/wait.ts"
import { follow, progressLine, readyCondition, type Summary } from "#src/cli/watch.ts"

const row = (resource: Summary): ReadonlyArray<string> => {
  const ready = readyCondition(resource)
  const next = resource.nextAttemptAt === null || ready?.status === "true" ? "" : resource.nextAttemptAt
  return [
    resource.address,
    resource.phase,
    `${resource.observedGeneration}/${resource.generation}`,
    ready?.status === "true" ? "" : (ready?.message ?? "not looked at yet"),
    next
  ]
}

const asked = (
  flags: { readonly project: Option.Option<string>; readonly kind: Option.Option<string> },
  { project, kind, name }: Summary
) =>
  (Option.isNone(flags.kind) || kind.toLowerCase() === flags.kind.value.toLowerCase()) &&
  (Option.isNone(flags.project) || (kind === "Project" ? name : project) === flags.project.value)

export const status = Command.make(
  "status",
  {
    ...connection,
    json: asJson,
    project: Flag.String("project").pipe(Flag.withDescription("Only this project (slug)"), Flag.optional),
    kind: Flag.String("kind").pipe(Flag.withDescription("Only this kind, such as Cache"), Flag.optional),
    watch: Flag.Boolean("watch").pipe(
      Flag.withAlias("w"),
      Flag.withDescription("Go on with every change"),
      Flag.withDefault(false)
    )
  },
  (flags) =>
    online(
      flags,
      flags.watch
        ? follow(({ deleted, resource }) => {
            if (!asked(flags, resource)) return Effect.succeed(false)
            return Effect.as(
              flags.json
                ? jsonLine({ deleted, resource })
                : out(deleted ? `${resource.address}  ${paint("gray", "gone")}` : progressLine(resource)),
              false
            )
          })
        : Effect.gen(function* () {
            const resources = (yield* allResources).filter((resource) => asked(flags, resource))
            if (flags.json) return yield* json({ resources })
            if (resources.length === 0) return yield* say("There is nothing yet; svc apply makes something")
            const sorted = resources.toSorted((a, b) =>
              `${a.project}/${a.address}`.localeCompare(`${b.project}/${b.address}`)
            )
            yield* out(
              table(["ADDRESS", "PHASE", "GENERATION", "WHY NOT READY", "NEXT TRY"], sorted.map(row))
            )
          })
    )
).pipe(Command.withDescription("Show how everything is doing"))

export const show = Command.make("show", { ...connection, json: asJson, address }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { uid } = yield* resolve(flags.address)
      const { body } = yield* call(asMember.resources.get({ params: { orgId: org, uid } }))
      if (flags.json) return yield* json(body)
      yield* out(
        facts([
          ["Address", body.address],
          ["Id", body.uid],
          ["Phase", body.phase],
          ["Generation", `${body.observedGeneration} of ${body.generation} acted on`],
          ["Managed by", body.managedBy],
          ["Protected", body.protected ? "yes" : "no"],
          ["Created", body.createdAt],
          ["Changed", body.updatedAt],
          ...(body.waitingOn === null ? [] : [["Waits for", body.waitingOn] as const]),
          ...(body.lastError === null ? [] : [["Last error", body.lastError] as const]),
          ...(body.nextAttemptAt === null ? [] : [["Next look", body.nextAttemptAt] as const])
        ])
      )
      const conditions = body.conditions.map(({ type, status, reason, lastTransitionAt, message }) => [
        type,
        status,
        reason,
        lastTransitionAt,
        message
      ])
      yield* out(`\n${table(["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"], conditions)}`)
      const { stringify } = yield* Effect.promise(() => import("yaml"))
      yield* out(`\n${stringify({ spec: body.spec, status: body.status }, { lineWidth: 0 }).trimEnd()}`)
    })
  )
).pipe(
  Command.withAlias("describe"),
  Command.withDescription("Show a resource: what was asked for, what is there, and why it is not ready")
)

export const wait = Command.make(
  "wait",
  {
    ...connection,
    timeout: waiting.timeout,
    addresses: address.pipe(Argument.variadic())
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const resources =
          flags.addresses.length === 0
            ? yield* allResources
            : yield* Effect.forEach(flags.addresses, (named) => resolve(named))
        yield* detachable(waitFor(goalsNow(resources), flags.timeout))
      })
    )
).pipe(
  Command.withDescription(
    "Wait until resources (all, if none is named) have converged as they are asked for now"
  )
)

export const events = Command.make(
  "events",
  {
    ...connection,
    address,
    json: asJson,
    limit: Flag.Int("limit").pipe(Flag.withDescription("How many, newest first"), Flag.withDefault(20))
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { uid } = yield* resolve(flags.address)
        const limit = Math.min(100, Math.max(1, flags.limit))
        const page = yield* call(asMember.resources.events({ params: { orgId: org, uid }, query: { limit } }))
        if (flags.json) return yield* json(page)
        const rows = page.items.map(({ lastAt, type, reason, count, message }) => [
          lastAt,
          type,
          reason,
          String(count),
          message
        ])
        yield* out(table(["LAST", "TYPE", "REASON", "TIMES", "MESSAGE"], rows))
      })
    )
).pipe(Command.withDescription("Show the history of a resource, newest first"))

export const diff = Command.make(
  "diff",
  { ...connection, json: asJson, address: address.pipe(Argument.optional) },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const looked = Option.isSome(flags.address)
          ? [yield* resolve(flags.address.value)]
          : yield* allResources
        const drifted = looked.filter(({ differences }) => differences.length > 0)
        if (flags.json) {
          yield* json({
            drift: drifted.map(({ uid, address, differences }) => ({ uid, address, differences }))
          })
        } else if (drifted.length === 0) yield* say("At the last look everything was as it should be")
        for (const { address, differences } of flags.json ? [] : drifted) {
          yield* out(paint("yellow", `! ${address}`))
          for (const { field, message } of differences) yield* out(visibleLine(`    ${field}: ${message}`))
        }
        if (drifted.length > 0) return yield* failure("", exitCodes.usage)
      })
    )
).pipe(
  Command.withDescription(
    "Show where what is there differs from what was asked for (exits with 2 if anywhere)"
  )
)
