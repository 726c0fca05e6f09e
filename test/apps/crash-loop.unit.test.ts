/** A day of an app whose instances end again and again, step by step as they are decided, on a clock that is moved. */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { crashOf } from "#reconcilers/app/crash.ts"
import type { SeenInstance, Step } from "#reconcilers/app/situation.ts"
import { decide } from "#reconcilers/app/state-machine.ts"
import type { AppRow, Instance, SiteState } from "#src/apps/app-state.ts"
import { AppOptions } from "#src/apps/options.ts"
import type { Container } from "#src/infra/containers/ContainerEngine.ts"
import { smallApp as spec } from "./small-app.ts"

const begin = Date.UTC(2030, 0, 1)
const day = 24 * 3_600_000
const wanted = { revision: "r", deployment: "d" }

interface One {
  instance: Instance
  container: Container | undefined
}

/**
 * When instances were started within a day, and how often anything was decided. One runs for `livesMs`, and answers its
 * health check meanwhile; 0: it has ended before anybody looks. Requests may come whenever they like.
 */
const aDay = (options: AppOptions, livesMs: number) => {
  let now = begin
  let row: AppRow = {
    power: "awake",
    activeAt: new Date(begin),
    asleepAt: null,
    servingRevision: wanted.revision,
    servingDeployment: wanted.deployment,
    rejectedRevision: null,
    rejectedDeployment: null,
    rejectedError: null,
    crashes: 0,
    nextStartAt: null,
    startedRevision: null,
    scale: null,
    scaleAt: null
  }
  let site: SiteState = {
    target: null,
    appUid: "app",
    asleep: false,
    wakeRequested: false,
    lastMinute: null,
    origin: null,
    scalesToZero: false,
    requests: 0
  }
  let all: ReadonlyArray<One> = []
  const starts: Array<number> = []
  const change = (uid: string, instance: Partial<Instance>, container?: Partial<Container>) => {
    all = all.map((one) =>
      one.instance.uid !== uid
        ? one
        : {
            instance: { ...one.instance, ...instance },
            container:
              one.container === undefined || container === undefined
                ? one.container
                : { ...one.container, ...container }
          }
    )
  }
  const take = (step: Step) => {
    switch (step.do) {
      case "wait":
      case "rest":
        // A look that comes too early, as after any change, starts nothing.
        now += Math.max(1, Math.min(step.forMs, 5_000))
        return
      case "add":
        row = { ...row, startedRevision: wanted.revision }
        starts.push(now)
        all = [...all, { instance: madeAt(now, `i${starts.length}`), container: undefined }]
        return
      case "make":
        all = all.map((one) => (one.instance === step.instance ? { ...one, container: created } : one))
        return change(step.instance.uid, { containerMade: true })
      case "start":
        return change(
          step.instance.uid,
          {},
          livesMs === 0
            ? { state: "exited", startedAt: new Date(now), finishedAt: new Date(now), exitCode: 1 }
            : { state: "running", startedAt: new Date(now), address: "10.0.0.1" }
        )
      case "started":
        return change(step.instance.uid, { address: step.address, startedAt: step.at })
      case "healthy":
        return change(step.instance.uid, { state: "healthy", healthyAt: new Date(now) })
      case "serve":
        site = { ...site, target: step.target }
        return
      case "ended": {
        const after = step.crash ? crashOf(options, row, step.instance, now) : undefined
        row = { ...row, ...after }
        site = { ...site, target: null }
        return change(step.instance.uid, { state: "ended", endedAt: step.how.at, logComplete: true })
      }
      case "remove":
        all = all.filter(({ instance }) => instance.uid !== step.instance.uid)
        return
      default:
        throw new Error(`nothing of that is due: ${step.do}`)
    }
  }
  let decided = 0
  for (; now < begin + day; decided++) {
    for (const { instance, container } of all)
      if (container?.state === "running" && now >= (container.startedAt?.getTime() ?? 0) + livesMs)
        change(instance.uid, {}, { state: "exited", finishedAt: new Date(now), exitCode: 1 })
    const seen = all.map(
      ({ instance, container }): SeenInstance => ({
        instance,
        container,
        health: container?.state === "running" ? null : undefined,
        askedAt: now,
        followed: true,
        connections: 0
      })
    )
    const instances = all.map(({ instance }) => instance)
    take(decide({ now, spec, state: { row, instances }, target: wanted, seen, site, options }))
  }
  return { starts, decided, left: all.length }
}

const created: Container = {
  id: "c",
  state: "created",
  paused: false,
  startedAt: undefined,
  finishedAt: undefined,
  exitCode: 0,
  outOfMemory: false,
  address: undefined
}
const madeAt = (at: number, uid: string): Instance => ({
  uid,
  ...wanted,
  port: 8_080,
  state: "starting",
  madeAt: new Date(at),
  containerMade: false,
  address: null,
  startedAt: null,
  healthyAt: null,
  drainAt: null,
  stopAt: null,
  endedAt: null,
  exitCode: null,
  exitReason: null,
  logComplete: false,
  logOwnerAgeMs: 0,
  unanswered: 0,
  checkedAt: null
})

describe("an app whose instances end again and again", () => {
  for (const [name, livesMs] of [
    ["at once", 0],
    ["a minute after they were healthy", 60_000]
  ] as const)
    it.effect(
      `${name} is started ever more rarely, some hundred times a day at most, and leaves nothing`,
      () =>
        Effect.gen(function* () {
          const options = yield* AppOptions
          const { starts, decided, left } = aDay(options, livesMs)
          const longest = options.backoffMs[1]
          const pauses = starts.slice(1).map((at, index) => at - (starts[index] ?? 0) - livesMs)
          const expected = (index: number) => Math.min(longest, options.backoffMs[0] * 2 ** index)
          for (const [index, pause] of pauses.entries()) {
            assert.isAtLeast(pause, expected(index), `after start ${index + 1}`)
            assert.isAtMost(pause, expected(index) + 20_000, `after start ${index + 1}`)
          }
          const most = day / (longest + livesMs) + 10
          assert.isAtMost(starts.length, most)
          assert.isAtLeast(starts.length, most * 0.8)
          // What has ended is removed.
          assert.isAtMost(left, 1)
          assert.isAtMost(decided, (day / 5_000) * 1.5)
        })
    )
})
