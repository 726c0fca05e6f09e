/** `svc status`, `events`, `diff`, and what an operator does by hand: `retry`, `pause`, `resume`, `protect`, `abandon`. */
import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "./client.ts"
import { exitCodes, failure } from "./failure.ts"
import { address, allResources, asJson, confirmName, connection, online, resolve } from "./flags.ts"
import { json, out, paint, say, table } from "./output.ts"
import { follow, progressLine, readyCondition, type Summary } from "./watch.ts"

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

export const status = Command.make(
  "status",
  {
    ...connection,
    json: asJson,
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
        ? follow(({ deleted, resource }) =>
            Effect.as(
              out(
                flags.json
                  ? JSON.stringify({ deleted, resource })
                  : deleted
                    ? `${resource.address}  ${paint("gray", "gone")}`
                    : progressLine(resource)
              ),
              false
            )
          )
        : Effect.gen(function* () {
            const resources = yield* allResources
            if (flags.json) return yield* json({ resources })
            if (resources.length === 0) return yield* say("There is nothing yet; svc apply makes something")
            yield* out(
              table(["ADDRESS", "PHASE", "GENERATION", "WHY NOT READY", "NEXT TRY"], resources.map(row))
            )
          })
    )
).pipe(Command.withDescription("Show how everything is doing"))

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
          for (const { field, message } of differences) yield* out(`    ${field}: ${message}`)
        }
        if (drifted.length > 0) return yield* failure("", exitCodes.usage)
      })
    )
).pipe(
  Command.withDescription(
    "Show where what is there differs from what was asked for (exits with 2 if anywhere)"
  )
)

export const retry = Command.make("retry", { ...connection, address }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { uid, address } = yield* resolve(flags.address)
      const { token } = yield* call(asMember.resources.retry({ params: { orgId: org, uid }, headers: {} }))
      yield* Effect.timeoutOrElse(
        follow(({ resource }) =>
          resource.uid === uid && resource.handledRetry === token
            ? Effect.as(say(progressLine(resource)), true)
            : Effect.succeed(false)
        ),
        {
          duration: "60 seconds",
          orElse: () =>
            Effect.fail(
              failure(
                `${address} was not looked at within a minute; is an engine running?`,
                exitCodes.timeout
              )
            )
        }
      )
    })
  )
).pipe(Command.withDescription("Look at a resource now, and wait until that has been done"))

export const pause = Command.make(
  "pause",
  {
    ...connection,
    address,
    reason: Flag.String("reason").pipe(
      Flag.withDescription("Why; shown to everybody"),
      Flag.withDefault("paused by hand")
    ),
    hours: Flag.Finite("hours").pipe(Flag.withDescription("End by itself after so many hours"), Flag.optional)
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { uid } = yield* resolve(flags.address)
        const now = yield* DateTime.now
        const until = Option.map(flags.hours, (hours) =>
          DateTime.add(now, { minutes: Math.round(hours * 60) })
        )
        const payload = { reason: flags.reason, ...(Option.isSome(until) ? { until: until.value } : {}) }
        yield* call(asMember.resources.pause({ params: { orgId: org, uid }, headers: {}, payload }))
        yield* say(`${flags.address} is observed and not touched until svc resume`)
      })
    )
).pipe(Command.withDescription("Observe a resource without touching it"))

export const resume = Command.make("resume", { ...connection, address }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { uid } = yield* resolve(flags.address)
      yield* call(asMember.resources.resume({ params: { orgId: org, uid }, headers: {} }))
      yield* say(`${flags.address} is reconciled again`)
    })
  )
).pipe(Command.withDescription("End the pause of a resource"))

export const protect = Command.make(
  "protect",
  {
    ...connection,
    address,
    off: Flag.Boolean("off").pipe(Flag.withDescription("Remove the protection"), Flag.withDefault(false))
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { uid } = yield* resolve(flags.address)
        yield* call(
          asMember.resources.protect({ params: { orgId: org, uid }, payload: { protected: !flags.off } })
        )
        yield* say(
          flags.off
            ? `${flags.address} can be deleted again`
            : `${flags.address} cannot be deleted, by anybody, in any way`
        )
      })
    )
).pipe(Command.withDescription("Protect a resource against deletion"))

export const abandon = Command.make(
  "abandon",
  {
    ...connection,
    address,
    reason: Flag.String("reason").pipe(Flag.withDescription("Why; kept in the history")),
    yes: Flag.Boolean("yes").pipe(Flag.withAlias("y"), Flag.withDefault(false)),
    json: asJson
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { uid, name, address } = yield* resolve(flags.address)
        yield* confirmName(
          `This forgets ${address} and leaves the real thing running, unmanaged.`,
          name,
          flags.yes
        )
        const payload = { confirm: name, reason: flags.reason }
        const answer = yield* call(
          asMember.resources.abandon({ params: { orgId: org, uid }, headers: {}, payload })
        )
        yield* flags.json ? json(answer) : say(`Left behind: ${JSON.stringify(answer.leftBehind)}`)
      })
    )
).pipe(Command.withDescription("Forget a resource without removing the real thing"))
