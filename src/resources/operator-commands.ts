/** What an operator does by hand: `svc retry`, `pause`, `resume`, `protect`, `abandon`. */
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "#src/cli/client.ts"
import { exitCodes, failure } from "#src/cli/failure.ts"
import { address, asJson, confirmName, connection, online, resolve, waiting, yes } from "#src/cli/flags.ts"
import { json, say } from "#src/cli/output.ts"
import { detachable, type Waiting, waitForOne } from "#src/cli/wait.ts"
import { follow } from "#src/cli/watch.ts"

/** The resource as it is now, for programs. */
const showNow = Effect.fnUntraced(function* (uid: string) {
  const { asMember, org } = yield* Client
  const { body } = yield* call(asMember.resources.get({ params: { orgId: org, uid } }))
  yield* json(body)
})

export const retry = Command.make("retry", { ...connection, ...waiting, json: asJson, address }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { uid, address } = yield* resolve(flags.address)
      const { token } = yield* call(asMember.resources.retry({ params: { orgId: org, uid }, headers: {} }))
      if (flags.wait) yield* waitForOne(uid, flags, { retry: token })
      else if (!flags.json)
        yield* say(`${address} is looked at next; svc events ${address} tells what came of it`)
      if (flags.json) yield* showNow(uid)
    })
  )
).pipe(Command.withDescription("Look at a resource now, and wait until it has converged"))

/** Waits until the engine has taken note of a pause, or of its end. */
const noted = Effect.fnUntraced(function* (uid: string, address: string, paused: boolean, flags: Waiting) {
  const wanted = paused ? "true" : "false"
  yield* follow(({ deleted, resource }) =>
    Effect.succeed(
      resource.uid === uid &&
        (deleted || resource.conditions.some(({ type, status }) => type === "Paused" && status === wanted))
    )
  ).pipe(
    Effect.timeoutOrElse({
      duration: flags.timeout * 1000,
      orElse: () =>
        Effect.fail(
          failure(
            `${address} was not looked at within ${flags.timeout} s; is an engine running?`,
            exitCodes.timeout
          )
        )
    }),
    detachable
  )
})

export const pause = Command.make(
  "pause",
  {
    ...connection,
    ...waiting,
    json: asJson,
    address,
    reason: Flag.String("reason").pipe(
      Flag.withDescription("Why; shown to everybody"),
      Flag.withDefault("paused by hand")
    ),
    hours: Flag.Finite("hours").pipe(
      Flag.withDescription("End by itself after so many hours"),
      Flag.filter(
        (hours) => hours > 0,
        () => "must be more than 0"
      ),
      Flag.optional
    )
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { uid, address } = yield* resolve(flags.address)
        const now = yield* DateTime.now
        const until = Option.map(flags.hours, (hours) =>
          DateTime.add(now, { minutes: Math.round(hours * 60) })
        )
        const payload = { reason: flags.reason, ...(Option.isSome(until) ? { until: until.value } : {}) }
        yield* call(asMember.resources.pause({ params: { orgId: org, uid }, headers: {}, payload }))
        if (flags.wait) yield* noted(uid, address, true, flags)
        if (flags.json) return yield* showNow(uid)
        const end = Option.match(until, {
          onNone: () => "",
          onSome: (time) => `, or ${DateTime.formatIso(time)}`
        })
        yield* say(`${address} is observed and not touched until svc resume${end}`)
      })
    )
).pipe(Command.withDescription("Observe a resource without touching it"))

export const resume = Command.make("resume", { ...connection, ...waiting, json: asJson, address }, (flags) =>
  online(
    flags,
    Effect.gen(function* () {
      const { asMember, org } = yield* Client
      const { uid, address } = yield* resolve(flags.address)
      yield* call(asMember.resources.resume({ params: { orgId: org, uid }, headers: {} }))
      if (flags.wait) {
        yield* noted(uid, address, false, flags)
        yield* waitForOne(uid, flags)
      }
      yield* flags.json ? showNow(uid) : say(`${address} is reconciled again`)
    })
  )
).pipe(Command.withDescription("End the pause of a resource, and wait until it has converged"))

export const protect = Command.make(
  "protect",
  {
    ...connection,
    json: asJson,
    address,
    off: Flag.Boolean("off").pipe(Flag.withDescription("Remove the protection"), Flag.withDefault(false))
  },
  (flags) =>
    online(
      flags,
      Effect.gen(function* () {
        const { asMember, org } = yield* Client
        const { uid, address } = yield* resolve(flags.address)
        yield* call(
          asMember.resources.protect({ params: { orgId: org, uid }, payload: { protected: !flags.off } })
        )
        if (flags.json) return yield* showNow(uid)
        yield* say(
          flags.off
            ? `${address} can be deleted again`
            : `${address} cannot be deleted, by anybody, in any way`
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
    yes,
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
        if (flags.json) return yield* json(answer)
        yield* say(`${address} is forgotten. What it was, and may still be out there:`)
        yield* json(answer.leftBehind)
      })
    )
).pipe(Command.withDescription("Forget a resource without removing the real thing"))
