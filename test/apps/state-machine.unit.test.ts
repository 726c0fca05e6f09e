/** What becomes of an app, as a function: nothing here touches anything. */
import { assert, describe, it } from "@effect/vitest"
import type { SeenInstance, Situation, Step } from "#reconcilers/app/situation.ts"
import { decide, isFirstOfRound } from "#reconcilers/app/state-machine.ts"
import type { AppRow, Instance, SiteState } from "#src/apps/app-state.ts"
import type { AppOptions } from "#src/apps/options.ts"
import type { Container } from "#src/infra/containers/ContainerEngine.ts"
import { smallApp as spec } from "./small-app.ts"

const now = Date.UTC(2030, 0, 1)
const ago = (seconds: number) => new Date(now - seconds * 1_000)

const options: AppOptions = {
  drainMs: 30_000,
  graceMs: 10_000,
  rollCrashes: 3,
  backoffMs: [1_000, 60_000],
  steadyMs: 600_000,
  settleMs: 1_500,
  captureMs: 30_000,
  followerMs: 15_000,
  logBytes: 1_000,
  lookMs: 10_000,
  livenessMs: 10_000,
  scaleMs: 3_000,
  scaleDownMs: 180_000
}
const row: AppRow = {
  power: "awake",
  activeAt: ago(10),
  asleepAt: null,
  servingRevision: null,
  servingDeployment: null,
  rejectedRevision: null,
  rejectedDeployment: null,
  rejectedError: null,
  crashes: 0,
  nextStartAt: null,
  startedRevision: null,
  scale: null,
  scaleAt: null
}
const site: SiteState = {
  target: null,
  appUid: null,
  asleep: false,
  wakeRequested: false,
  lastMinute: null,
  origin: null,
  scalesToZero: false,
  requests: 0
}
const container = (more: Partial<Container> = {}): Container => ({
  id: "c",
  state: "running",
  paused: false,
  startedAt: ago(10),
  finishedAt: undefined,
  exitCode: 0,
  outOfMemory: false,
  address: "10.0.0.1",
  ...more
})
const instance = (uid: string, revision: string, more: Partial<Instance> = {}): Instance => ({
  uid,
  deployment: `d-${revision}`,
  revision,
  port: 8_080,
  state: "healthy",
  madeAt: ago(20),
  containerMade: true,
  address: "10.0.0.1",
  startedAt: ago(10),
  healthyAt: ago(5),
  drainAt: null,
  stopAt: null,
  endedAt: null,
  exitCode: null,
  exitReason: null,
  logComplete: false,
  logOwnerAgeMs: 0,
  unanswered: 0,
  checkedAt: null,
  ...more
})
const seen = (one: Instance, more: Partial<SeenInstance> = {}): SeenInstance => ({
  instance: one,
  container: container({ address: one.address ?? undefined }),
  health: undefined,
  askedAt: now,
  followed: true,
  connections: 0,
  ...more
})

interface Given extends Partial<Omit<Situation, "state" | "site">> {
  readonly row?: Partial<AppRow>
  readonly at?: Partial<SiteState>
}
const rev = (revision: string) => ({ revision, deployment: `d-${revision}` })
const serving = (revision: string) => ({
  servingRevision: revision,
  servingDeployment: `d-${revision}`
})
const routed = { appUid: "app", target: { address: "10.0.0.1", port: 8_080 } }
const next = ({ row: given, at, seen: all = [], ...more }: Given): Step =>
  decide({
    now,
    spec,
    state: { row: { ...row, ...given }, instances: all.map((one) => one.instance) },
    target: rev("new"),
    seen: all,
    site: { ...site, ...at },
    options,
    ...more
  })
const does = (given: Given, expected: Step["do"]) => {
  const step = next(given)
  assert.strictEqual(step.do, expected, JSON.stringify(step))
  return step
}

describe("an app", () => {
  it("starts one instance and has it make, start and be asked for its health before it serves", () => {
    assert.deepStrictEqual(does({}, "add"), { do: "add", of: rev("new") })
    const fresh = instance("1", "new", {
      state: "starting",
      containerMade: false,
      address: null,
      startedAt: null,
      healthyAt: null
    })
    does({ seen: [seen(fresh, { container: undefined })] }, "make")
    does({ seen: [seen(fresh, { container: container({ state: "created" }) })] }, "start")
    const told = does({ seen: [seen(fresh, { container: container() })] }, "started")
    assert.deepInclude(told, { address: "10.0.0.1" })
    const begun = { ...fresh, containerMade: true, address: "10.0.0.1", startedAt: ago(2) }
    does({ seen: [seen(begun, { health: "/ answers 500" })] }, "wait")
    does({ seen: [seen(begun, { health: null })] }, "healthy")
    const up = seen({ ...begun, state: "healthy" })
    assert.deepInclude(does({ seen: [up] }, "serve"), {
      what: rev("new"),
      target: { address: "10.0.0.1", port: 8_080 }
    })
    does({ seen: [up], row: serving("new"), at: routed }, "rest")
  })

  it("gives the places of a version to another one by one: the next is started once the one before is healthy", () => {
    const two = { ...spec, instances: 2 }
    const at = (uid: string) => ({ address: `10.0.0.${uid}`, port: 8_080 })
    const old = ["1", "2"].map((uid) => seen(instance(uid, "old", { address: at(uid).address })))
    const up = (uid: string) => seen(instance(uid, "new", { address: at(uid).address }))
    const begun = (uid: string) =>
      seen(instance(uid, "new", { state: "starting", address: at(uid).address }), { health: "not yet" })
    const to = (first: string, ...others: ReadonlyArray<string>) => ({
      appUid: "app",
      target: { ...at(first), others: others.map(at) }
    })
    const common = { spec: two, row: { ...serving("old"), startedRevision: "new" } }
    const uids = (step: Step) => (step.do === "serve" ? step.instances.map(({ uid }) => uid) : [])
    does({ ...common, at: to("1", "2"), seen: old }, "add")
    does({ ...common, at: to("1", "2"), seen: [...old, begun("3")] }, "wait")
    const first = does({ ...common, at: to("1", "2"), seen: [...old, up("3")] }, "serve")
    assert.deepStrictEqual(uids(first), ["3", "1"])
    // It is not what serves yet.
    assert.deepInclude(first, { what: rev("old"), target: to("1", "3").target })
    const [one, other] = old
    if (one === undefined || other === undefined) return
    const leaving = seen({ ...other.instance, state: "draining", drainAt: ago(1) })
    does({ ...common, at: to("1", "3"), seen: [one, leaving, up("3")] }, "add")
    does({ ...common, at: to("1", "3"), seen: [one, leaving, up("3"), begun("4")] }, "wait")
    const last = does({ ...common, at: to("1", "3"), seen: [one, leaving, up("3"), up("4")] }, "serve")
    assert.deepStrictEqual(uids(last), ["3", "4"])
    assert.deepInclude(last, { what: rev("new"), target: to("3", "4").target })
    // The second one ends again and again: the places that the first has are given back.
    const given = { ...common, row: { ...common.row, rejectedRevision: "new" } }
    does({ ...given, at: to("1", "3"), seen: [one, up("3"), begun("4")] }, "stop")
    assert.deepInclude(next({ ...given, at: to("1", "3"), seen: [one, up("3")] }), { of: rev("old") })
    const back = seen(instance("5", "old", { address: at("5").address }))
    assert.deepStrictEqual(uids(next({ ...given, at: to("1", "3"), seen: [one, up("3"), back] })), ["1", "5"])
    // Of what serves nothing is left: there is nothing to wait for.
    does({ ...common, at: { appUid: "app" }, seen: [begun("3")] }, "add")
  })

  it("replaces an instance that answers its health check no more, one at a time and beside it", () => {
    const two = { ...spec, instances: 2 }
    const at = (uid: string) => ({ address: `10.0.0.${uid}`, port: 8_080 })
    const up = (uid: string, unanswered: number, more: Partial<SeenInstance> = {}) =>
      seen(instance(uid, "new", { address: at(uid).address, unanswered }), more)
    const to = (first: string, ...others: ReadonlyArray<string>) => ({
      appUid: "app",
      target: { ...at(first), others: others.map(at) }
    })
    const common = { spec: two, row: { ...serving("new"), startedRevision: "new" }, at: to("1", "2") }
    const fails = (unanswered: number) => up("1", unanswered, { health: "/ answers 500" })
    assert.deepInclude(next({ ...common, seen: [fails(0), up("2", 0)] }), {
      do: "checked",
      unanswered: 1,
      crash: false
    })
    assert.deepInclude(next({ ...common, seen: [fails(2), up("2", 0)] }), { unanswered: 3, crash: true })
    assert.deepInclude(next({ ...common, seen: [up("1", 2, { health: null }), up("2", 0)] }), {
      unanswered: 0
    })
    // A check counts once.
    const { instance: noted, ...rest } = fails(1)
    does(
      { ...common, seen: [{ ...rest, instance: { ...noted, checkedAt: new Date(now) } }, up("2", 0)] },
      "rest"
    )
    // Below the threshold nothing happens; at it no requests go there while another one answers, and it stays.
    does({ ...common, seen: [up("1", 2), up("2", 0)] }, "rest")
    const away = does({ ...common, seen: [up("1", 3), up("2", 0)] }, "serve")
    assert.deepInclude(away, { target: to("2").target })
    assert.lengthOf(away.do === "serve" ? away.instances : [], 2)
    const waiting = { ...common, row: { ...common.row, nextStartAt: new Date(now + 1_000), crashes: 1 } }
    does({ ...waiting, at: to("2"), seen: [up("1", 3), up("2", 0)] }, "rest")
    does({ ...common, at: to("2"), seen: [up("1", 3), up("2", 0)] }, "add")
    // None answers: they go on taking requests, and one is replaced.
    does({ ...common, seen: [up("1", 3), up("2", 3)] }, "add")
    const begun = seen(instance("3", "new", { state: "starting", address: at("3").address }), {
      health: "no"
    })
    does({ ...common, seen: [up("1", 3), up("2", 3), begun] }, "rest")
    const taken = does({ ...common, seen: [up("1", 3), up("2", 3), up("3", 0)] }, "serve")
    assert.deepStrictEqual(taken.do === "serve" ? taken.instances.map(({ uid }) => uid) : [], ["3", "1"])
    // Nobody asked for it.
    const never = { ...two, healthCheck: { ...two.healthCheck, failures: 0 } }
    does({ ...common, spec: never, seen: [up("1", 3), up("2", 0)] }, "rest")
  })

  it("has as many instances as the requests under way need, within its bounds, and fewer only after a while", () => {
    const scaled = { ...spec, instances: 2, maxInstances: 4 }
    const at = (uid: string) => ({ address: `10.0.0.${uid}`, port: 8_080 })
    const all = ["1", "2", "3", "4"].map((uid) => seen(instance(uid, "new", { address: at(uid).address })))
    const step = (
      count: number,
      requests: number,
      more: Partial<AppRow> = {},
      other: Partial<SiteState> = {}
    ) => {
      const [first, ...others] = all.slice(0, count).map((_, index) => at(String(index + 1)))
      return next({
        spec: scaled,
        row: { ...serving("new"), startedRevision: "new", ...more },
        at: { appUid: "app", target: { ...first, others }, requests, ...other },
        seen: all.slice(0, count)
      })
    }
    assert.deepStrictEqual(step(2, 20), { do: "rest", forMs: options.scaleMs })
    assert.deepStrictEqual(step(2, 20.1), { do: "scale", to: 3 })
    assert.deepStrictEqual(step(2, 1_000), { do: "scale", to: 4 })
    assert.strictEqual(step(2, 30, { scale: 3, scaleAt: ago(1) }).do, "add")
    assert.deepStrictEqual(step(4, 1_000, { scale: 4, scaleAt: ago(1) }), {
      do: "rest",
      forMs: options.scaleMs
    })
    // One at a time, and a while after the last time that as many were needed.
    assert.strictEqual(step(4, 0, { scale: 4, scaleAt: ago(179) }).do, "rest")
    assert.deepStrictEqual(step(4, 0, { scale: 4, scaleAt: ago(181) }), { do: "scale", to: 3 })
    assert.deepStrictEqual(step(4, 35, { scale: 4, scaleAt: ago(91) }), { do: "scale", to: 4 })
    assert.deepStrictEqual(step(3, 0, { scale: 3, scaleAt: ago(181) }), { do: "scale", to: null })
    const fewer = step(3, 0)
    assert.deepStrictEqual(fewer.do === "serve" ? fewer.instances.map(({ uid }) => uid) : [], ["1", "2"])
    // The bounds were changed.
    assert.strictEqual(step(4, 0, { scale: 9, scaleAt: ago(1) }).do, "rest")
    assert.deepStrictEqual(step(2, 0, { scale: 1, scaleAt: ago(1) }), { do: "scale", to: null })
    // Another origin has the requests; or another version comes first.
    assert.strictEqual(step(2, 1_000, {}, { origin: "https://elsewhere.example" }).do, "rest")
    assert.strictEqual(step(2, 1_000, serving("old")).do, "serve")
  })

  it("gives up a version that does not get healthy in time, or ends too often, and keeps what serves", () => {
    const old = seen(instance("1", "old"))
    const slow = seen(instance("2", "new", { state: "starting", startedAt: ago(61) }), {
      health: "/ answers 503"
    })
    const common = { row: serving("old"), at: routed }
    const step = does({ ...common, seen: [old, slow] }, "reject")
    assert.deepInclude(step, { error: "It did not get healthy within 60 s: / answers 503" })
    const ended = { ...serving("old"), crashes: 3, startedRevision: "new" }
    does({ row: ended, at: routed, seen: [old] }, "reject")
    // It was the old one that ended: the new one is given its chance, at once.
    const looping = { ...ended, startedRevision: "old", nextStartAt: new Date(now + 60_000) }
    does({ row: looping, at: { appUid: "app" }, seen: [] }, "add")
    const rejected = { ...serving("old"), rejectedRevision: "new" }
    does({ row: rejected, at: routed, seen: [old, slow] }, "stop")
    does({ row: rejected, at: routed, seen: [old] }, "rest")
    // The first one: nothing is left to run.
    does({ row: { rejectedRevision: "new" }, seen: [slow] }, "stop")
    does({ row: { rejectedRevision: "new" } }, "wait")
  })

  it("ends an instance whose place was taken once nobody is connected to it, at the latest after a while", () => {
    const leaving = (seconds: number, connections: number) =>
      seen(instance("1", "old", { state: "draining", drainAt: ago(seconds), address: "10.0.0.9" }), {
        connections
      })
    const up = seen(instance("2", "new"))
    const common = { row: serving("new"), at: routed }
    does({ ...common, seen: [leaving(1, 0), up] }, "rest")
    does({ ...common, seen: [leaving(2, 1), up] }, "rest")
    does({ ...common, seen: [leaving(2, 0), up] }, "stop")
    does({ ...common, seen: [leaving(31, 1), up] }, "stop")
    const told = (seconds: number) => seen(instance("1", "old", { state: "stopping", stopAt: ago(seconds) }))
    does({ ...common, seen: [told(9), up] }, "rest")
    does({ ...common, seen: [told(11), up] }, "kill")
    // Its container never ran: there is nothing to kill.
    const created = { ...told(11), container: container({ state: "created" }) }
    assert.deepInclude(next({ ...common, seen: [created, up] }), { do: "ended", crash: false })
  })

  it("follows an instance that ended with another, more and more rarely", () => {
    const gone = seen(instance("1", "new"), {
      container: container({ state: "exited", exitCode: 7, finishedAt: ago(1) })
    })
    const common = { row: serving("new"), at: routed }
    const step = does({ ...common, seen: [gone] }, "ended")
    assert.deepInclude(step, { crash: true })
    const looping = {
      ...serving("new"),
      crashes: 5,
      nextStartAt: new Date(now + 4_000),
      startedRevision: "new"
    }
    const waits = does({ row: looping, at: { appUid: "app" } }, "wait")
    assert.deepInclude(waits, { reason: "CrashLooping", forMs: 4_000 })
    does({ row: { ...looping, nextStartAt: ago(1) }, at: { appUid: "app" } }, "add")
    assert.isTrue(isFirstOfRound({ ...row, nextStartAt: ago(30) }, gone.instance))
    // Another one that was started with it has ended before.
    assert.isFalse(isFirstOfRound({ ...row, nextStartAt: ago(10) }, gone.instance))
    // Of a version that is being replaced: what replaces it did not end.
    assert.deepInclude(next({ ...common, target: rev("newer"), seen: [gone] }), { do: "ended", crash: false })
    // What is told to end and ends is no crash.
    const asked = seen(instance("1", "new", { state: "stopping", stopAt: ago(1) }), {
      container: container({ state: "exited" })
    })
    assert.deepInclude(next({ ...common, seen: [asked] }), { do: "ended", crash: false })
    const steady = seen(instance("1", "new", { healthyAt: ago(601) }))
    does({ row: { ...serving("new"), crashes: 2 }, at: routed, seen: [steady] }, "steady")
  })

  it("keeps what an ended instance printed before it removes the container, but not for ever", () => {
    const over = (seconds: number, more: Partial<Instance> = {}) =>
      instance("1", "new", { state: "ended", endedAt: ago(seconds), ...more })
    const exited = container({ state: "exited" })
    const up = seen(instance("2", "new"))
    const common = { row: serving("new"), at: routed }
    does({ ...common, seen: [seen(over(1), { container: exited, followed: false }), up] }, "follow")
    does({ ...common, seen: [seen(over(1), { container: exited }), up] }, "rest")
    does({ ...common, seen: [seen(over(1, { logComplete: true }), { container: exited }), up] }, "remove")
    does({ ...common, seen: [seen(over(31), { container: exited }), up] }, "remove")
    const stuck = seen(over(1), { container: undefined })
    does({ ...common, seen: [stuck, up] }, "remove")
    // Nothing waits for that: neither a new version, nor an instance that is to take its place.
    does({ ...common, target: rev("newer"), seen: [stuck, up] }, "add")
    does({ ...common, at: { appUid: "app" }, seen: [stuck] }, "add")
    does({ ...common, target: rev("newer"), seen: [seen(up.instance, { followed: false })] }, "add")
  })

  it("goes to sleep by steps when nobody uses it: requests are held, then it is paused, then stopped", () => {
    const up = seen(instance("1", "new"))
    const zero = { ...routed, scalesToZero: true }
    const idle = { ...serving("new"), activeAt: ago(301) }
    does({ row: idle, at: routed, seen: [up] }, "rest")
    does({ row: idle, at: { ...zero, lastMinute: ago(300) }, seen: [up] }, "rest")
    does({ row: idle, at: zero, seen: [{ ...up, connections: 1 }] }, "active")
    does({ row: idle, at: zero, seen: [up] }, "fallAsleep")
    const held = { ...zero, asleep: true }
    does({ row: { ...idle, asleepAt: ago(1) }, at: held, seen: [up] }, "rest")
    // A request that came in the last moment.
    does({ row: { ...idle, asleepAt: ago(2) }, at: held, seen: [{ ...up, connections: 1 }] }, "wake")
    does({ row: { ...idle, asleepAt: ago(2) }, at: held, seen: [up] }, "pause")
    const still = { ...up, container: container({ paused: true }) }
    does({ row: { ...idle, asleepAt: ago(2) }, at: held, seen: [still] }, "paused")
    const paused = { ...idle, power: "paused" as const, asleepAt: ago(2) }
    does({ row: paused, at: held, seen: [still] }, "rest")
    does({ row: { ...paused, activeAt: ago(3_601) }, at: held, seen: [still] }, "stopped")
    const stopped = { ...paused, power: "stopped" as const }
    does({ row: stopped, at: held, seen: [still] }, "stop")
    does({ row: stopped, at: { ...held, target: null }, seen: [] }, "rest")
  })

  it("wakes for a request, for a new version, and when the project does not scale to zero any more", () => {
    const held = { ...routed, asleep: true, scalesToZero: true }
    const still = seen(instance("1", "new"), { container: container({ paused: true }) })
    const up = seen(instance("1", "new"))
    const paused = { ...serving("new"), power: "paused" as const, asleepAt: ago(60), activeAt: ago(400) }
    const waking = { row: paused, at: { ...held, wakeRequested: true } }
    assert.deepInclude(does({ ...waking, seen: [still] }, "unpause"), { wake: true })
    // Requests are to come to another version.
    const former = seen(instance("1", "old"), { container: container({ paused: true }) })
    assert.deepInclude(does({ ...waking, seen: [former] }, "unpause"), { wake: false })
    does({ row: paused, at: { ...held, wakeRequested: true }, seen: [up] }, "wake")
    does({ row: paused, at: { ...held, scalesToZero: false }, seen: [still] }, "unpause")
    does({ row: { ...paused, ...serving("old") }, at: held, seen: [seen(instance("1", "old"))] }, "add")
    const stopped = { ...paused, power: "stopped" as const }
    const asked = { ...held, wakeRequested: true, target: null }
    does({ row: stopped, at: asked, seen: [] }, "add")
    does({ row: stopped, at: asked, seen: [up] }, "serve")
    does({ row: stopped, at: { ...asked, target: routed.target }, seen: [up] }, "wake")
  })

  it("leaves the requests to an origin that the environment names", () => {
    const at = { origin: "https://elsewhere.example" }
    assert.deepInclude(does({ seen: [seen(instance("1", "new"))], at }, "serve"), { route: false })
    does({ seen: [seen(instance("1", "new"))], at, row: serving("new") }, "rest")
  })
})
