/**
 * Waiting until what was asked for is done. What is under way belongs to the control plane: who stops waiting, by a
 * time limit or by Ctrl-C, stops nothing, and is told how to look again.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { Client, call } from "./client.ts"
import { type CliFailure, exitCodes, failure } from "./failure.ts"
import { allResources, resourcesOf } from "./flags.ts"
import { paint, say } from "./output.ts"
import { type Change, follow, progressLine, readyCondition, type Summary } from "./watch.ts"

export interface Goal {
  readonly address: string
  /** The generation that must have been acted on; null: the resource must be gone. */
  readonly generation: number | null
  /** Token of a retry that must have been carried out first. */
  readonly retry?: string
}

export interface Waiting {
  readonly wait: boolean
  readonly timeout: number
}

const progress = Effect.gen(function* () {
  const startedAt = yield* Clock.currentTimeMillis
  const shown = new Map<string, string>()
  return Effect.fnUntraced(function* (uid: string, line: string) {
    if (shown.get(uid) === line) return
    shown.set(uid, line)
    const seconds = (((yield* Clock.currentTimeMillis) - startedAt) / 1000).toFixed(1)
    yield* say(`${seconds.padStart(6)}s  ${line}`)
  })
})

/** How to look again at what goes on. */
const again = "watch it with: svc status --watch; wait again with: svc wait"

/** Says how to look again when somebody stops waiting. */
export const detachable = <A, E, R>(self: Effect.Effect<A, E, R>) =>
  Effect.onInterrupt(self, () => say("", `Not waiting any longer. What was asked for goes on; ${again}`))

/** Waits until each has converged, and shows each change of condition on the way. Fails when one has failed. */
export const waitFor = Effect.fnUntraced(function* (
  goals: ReadonlyMap<string, Goal>,
  timeoutSeconds: number
): Effect.fn.Return<void, CliFailure, Client> {
  const open = new Map(goals)
  if (open.size === 0) return
  const failed: Array<string> = []
  const show = yield* progress
  const end = (uid: string, trouble?: string) => {
    if (trouble !== undefined) failed.push(trouble)
    open.delete(uid)
  }
  const check = Effect.fnUntraced(function* ({ deleted, resource }: Change) {
    const goal = open.get(resource.uid)
    if (goal === undefined) return open.size === 0
    yield* show(resource.uid, deleted ? `${goal.address}  ${paint("green", "gone")}` : progressLine(resource))
    if (deleted) end(resource.uid, goal.generation === null ? undefined : `${goal.address} was deleted`)
    else if (goal.generation !== null) {
      const answer = answerTo(goal, goal.generation, resource)
      if (answer !== undefined) end(resource.uid, answer === "done" ? undefined : answer)
    }
    return open.size === 0
  })
  // The feed begins with what is there, so it says nothing of what was gone before it was opened.
  const lookForGone = Effect.gen(function* () {
    for (;;) {
      const few = open.size <= 5
      const gone = yield* Effect.orElseSucceed(few ? goneOf([...open.keys()]) : goneAmong(open), () => [])
      for (const uid of gone) {
        const goal = open.get(uid)
        if (goal === undefined) continue
        yield* show(uid, `${goal.address}  ${paint("green", "gone")}`)
        end(uid, goal.generation === null ? undefined : `${goal.address} was deleted`)
      }
      if (open.size === 0) return
      yield* Effect.sleep(few ? "3 seconds" : "30 seconds")
    }
  })
  yield* Effect.raceFirst(follow(check), lookForGone).pipe(
    Effect.timeoutOrElse({
      duration: timeoutSeconds * 1000,
      orElse: () =>
        Effect.fail(
          failure(
            `Not done after ${timeoutSeconds} s: ${[...open.values()].map(({ address }) => address).join(", ")}. It goes on by itself; ${again}`,
            exitCodes.timeout
          )
        )
    })
  )
  if (failed.length > 0) return yield* failure(failed.join("\n"))
})

const goneOf = Effect.fnUntraced(function* (uids: ReadonlyArray<string>) {
  const { asMember, org } = yield* Client
  return yield* Effect.filter(uids, (uid) =>
    call(asMember.resources.get({ params: { orgId: org, uid } })).pipe(
      Effect.as(false),
      Effect.catchIf(
        ({ exitCode }) => exitCode === exitCodes.notFound,
        () => Effect.succeed(true)
      )
    )
  )
})

const goneAmong = (goals: ReadonlyMap<string, unknown>) =>
  Effect.map(allResources, (resources) => {
    const there = new Set(resources.map(({ uid }) => uid))
    return [...goals.keys()].filter((uid) => !there.has(uid))
  })

/** "done", why it is not going to be, or undefined while it is on its way. */
const answerTo = (goal: Goal, generation: number, resource: Summary): string | undefined => {
  if (goal.retry !== undefined && resource.handledRetry !== goal.retry) return
  if (resource.deleting) return `${goal.address} is being deleted`
  const ready = readyCondition(resource)
  const acted = resource.observedGeneration >= generation
  if (acted && ready?.status === "true" && ready.observedGeneration >= generation) return "done"
  if (resource.conditions.some(({ type, status }) => type === "Paused" && status === "true"))
    return `${goal.address} is paused, so nothing is done about it until: svc resume ${goal.address}`
  if (acted && resource.phase === "failed") return `${goal.address}: ${ready?.message ?? "failed"}`
  return
}

/** Waits for one resource as it is asked for now. */
export const waitForOne = Effect.fnUntraced(function* (
  uid: string,
  flags: Waiting,
  more: { readonly retry?: string } = {}
) {
  const { asMember, org } = yield* Client
  const { body } = yield* call(asMember.resources.get({ params: { orgId: org, uid } }))
  const generation = body.deleting ? null : body.generation
  yield* detachable(waitFor(new Map([[uid, { address: body.address, generation, ...more }]]), flags.timeout))
})

/** What it means that these have converged as they are asked for now. */
export const goalsNow = (resources: ReadonlyArray<Summary>): ReadonlyMap<string, Goal> =>
  new Map(
    resources.map(({ uid, address, deleting, generation }) => [
      uid,
      { address, generation: deleting ? null : generation }
    ])
  )

/** The one resource of a kind at a place, if there is one. What is being deleted gives way to what took its name. */
export const findAt = Effect.fnUntraced(function* (
  kind: string,
  place: { readonly project: string; readonly environment: string },
  name?: string
) {
  const { project, environment } = place
  const found = (yield* resourcesOf({ kind, project, environment })).filter(
    (resource) => name === undefined || resource.name === name || resource.uid === name
  )
  return found.sort((a, b) => Number(a.deleting) - Number(b.deleting))[0]
})

/** Shows how what a request is about is doing until the request is answered. */
export const whileShowing = <A, E, R>(
  self: Effect.Effect<A, E, R>,
  matches: (resource: Summary) => boolean,
  flags: Waiting
) =>
  Effect.gen(function* () {
    const show = yield* progress
    const begun = new Set<string>()
    const watching = follow(
      Effect.fnUntraced(function* ({ deleted, resource }: Change) {
        if (deleted || !matches(resource)) return false
        const ready = readyCondition(resource)?.status === "true"
        // That it was ready before is no progress.
        if (!ready) begun.add(resource.uid)
        if (begun.has(resource.uid)) yield* show(resource.uid, progressLine(resource))
        return false
      })
    )
    // Progress is a courtesy: when it cannot be followed, the answer still comes.
    return yield* Effect.raceFirst(self, Effect.andThen(Effect.ignore(watching), Effect.never))
  }).pipe(
    flags.wait
      ? (shown) =>
          Effect.timeoutOrElse(shown, {
            duration: flags.timeout * 1000,
            orElse: () =>
              Effect.fail(
                failure(
                  `Not done after ${flags.timeout} s. It goes on by itself; ${again}`,
                  exitCodes.timeout
                )
              )
          })
      : () => self,
    detachable
  )
