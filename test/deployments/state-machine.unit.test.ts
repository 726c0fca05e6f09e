/** What becomes of a deployment, as a function. */
import { assert, describe, it } from "@effect/vitest"
import { type AppSight, decide, type Situation, type Step } from "#reconcilers/deployment/state-machine.ts"
import type { DeploymentSpec } from "#schemas/deployment.ts"
import type { DeploymentRow } from "#src/deployments/Deployments.ts"

const at = (second: number) => new Date(Date.UTC(2030, 0, 1, 0, 0, second))
const spec: DeploymentSpec = {
  region: "local",
  source: { kind: "image", image: "a" },
  cancelRequested: false
}
const row: DeploymentRow = {
  uid: "mine",
  environmentUid: "e",
  createdAt: at(10),
  state: "queued",
  stateAgeMs: 0,
  errorCode: null,
  error: null,
  imageId: null,
  imageDigest: null,
  imageGone: false,
  overtaken: false
}
const app: AppSight = {
  chosen: undefined,
  chosenAt: undefined,
  serving: null,
  rejected: null,
  rejectedError: null,
  unsettled: 0
}
const options = {
  queueMs: 1_000,
  buildMs: 20_000,
  fetchMs: 1_000,
  startMs: 1_000,
  lastLines: 1,
  lastBytes: 1
}

interface Given extends Partial<Omit<Situation, "row" | "app" | "spec">> {
  readonly row?: Partial<DeploymentRow>
  readonly app?: Partial<AppSight>
  readonly cancel?: true
}
const next = ({ row: given, app: sight, cancel, ...more }: Given): Step =>
  decide({
    spec: { ...spec, cancelRequested: cancel === true },
    row: { ...row, ...given },
    app: { ...app, ...sight },
    pull: undefined,
    build: undefined,
    silent: undefined,
    options,
    ...more
  })
const ends = (given: Given, state: string, errorCode: string | null = null) => {
  const step = next(given)
  assert.strictEqual(step.do, "end", JSON.stringify(step))
  if (step.do === "end") assert.deepStrictEqual([step.end.state, step.end.errorCode], [state, errorCode])
}
const does = (given: Given, expected: Step["do"]) => {
  const step = next(given)
  assert.strictEqual(step.do, expected, JSON.stringify(step))
}

describe("a deployment", () => {
  it("of an upload is built in place of being fetched, within its time", () => {
    const plan = { kind: "static", steps: [], warnings: [], output: ".", fallback: false } as const
    const source = { kind: "upload", digest: "d", plan } as const
    const step = (given: Partial<DeploymentRow>, build?: Situation["build"], cancelRequested = false) =>
      decide({
        spec: { ...spec, source, cancelRequested },
        row: { ...row, ...given },
        app,
        pull: undefined,
        build,
        silent: undefined,
        options
      })
    const building = { state: "building" } as const
    const image = { id: "i", digest: null }
    assert.strictEqual(step({}).do, "toBuild")
    assert.strictEqual(step(building).do, "build")
    assert.strictEqual(step(building, { _tag: "Building" }).do, "wait")
    assert.deepStrictEqual(step(building, { _tag: "Built", image }), { do: "built", image })
    const failed = { _tag: "Failed", errorCode: "build_failed", message: "no" } as const
    const endOf = (one: Step) => (one.do === "end" ? [one.end.state, one.end.errorCode] : one.do)
    assert.deepStrictEqual(endOf(step(building, failed)), ["failed", "build_failed"])
    assert.deepStrictEqual(endOf(step({ ...building, stateAgeMs: 20_001 })), ["failed", "build_timed_out"])
    assert.deepStrictEqual(endOf(step(building, { _tag: "Building" }, true)), ["cancelled", null])
    assert.deepStrictEqual(endOf(step({ ...building, overtaken: true })), ["superseded", null])
  })

  it("is fetched and chosen, and ready once its instances take the requests", () => {
    assert.deepStrictEqual(
      decide({
        spec,
        row: undefined,
        app: undefined,
        pull: undefined,
        build: undefined,
        silent: undefined,
        options
      }),
      { do: "begin" }
    )
    does({}, "fetch")
    const fetching = { state: "fetching" } as const
    does({ row: fetching }, "pull")
    does({ row: fetching, pull: { _tag: "Queued" } }, "wait")
    does({ row: fetching, pull: { _tag: "Pulled", image: { id: "i", digest: null } } }, "fetched")
    const starting = { state: "starting" } as const
    does({ row: starting }, "choose")
    does({ row: starting, app: { chosen: "older", chosenAt: at(9) } }, "choose")
    does({ row: starting, app: { chosen: "mine", chosenAt: at(10) } }, "wait")
    does({ row: starting, app: { chosen: "mine", chosenAt: at(10), serving: "mine" } }, "ready")
    for (const state of ["ready", "failed", "cancelled", "superseded"] as const)
      does({ row: { state }, cancel: true }, "nothing")
  })

  it("gives way to what is newer, whenever that was chosen, and never takes its place", () => {
    for (const state of ["queued", "fetching"] as const) {
      ends({ row: { state, overtaken: true } }, "superseded")
      // Somebody rolled back after it was asked for.
      ends({ row: { state }, app: { chosen: "other", chosenAt: at(11) } }, "superseded")
    }
    ends({ row: { state: "starting" }, app: { chosen: "newer", chosenAt: at(11) } }, "superseded")
  })

  it("ends when it is cancelled, in each state, once the app has gone back to what answers", () => {
    for (const state of ["queued", "fetching"] as const) ends({ row: { state }, cancel: true }, "cancelled")
    const starting = { state: "starting" } as const
    does({ row: starting, cancel: true, app: { chosen: "mine", chosenAt: at(10) } }, "unchoose")
    ends({ row: starting, cancel: true, app: { chosen: "older", chosenAt: at(10) } }, "cancelled")
    // It serves already: that came first.
    does({ row: starting, cancel: true, app: { chosen: "mine", chosenAt: at(10), serving: "mine" } }, "ready")
  })

  it("fails with what went wrong: the image, its instances, or its time", () => {
    const failed = { _tag: "Failed", errorCode: "image_not_found", message: "gone" } as const
    ends({ row: { state: "fetching" }, pull: failed }, "failed", "image_not_found")
    ends({ row: { state: "fetching", stateAgeMs: 1_001 } }, "failed", "image_pull_failed")
    ends({ row: { stateAgeMs: 1_001 } }, "failed", "timed_out")
    const chosen = { chosen: "mine", chosenAt: at(10) }
    const rejected = { ...chosen, rejected: "mine", rejectedError: "no" }
    does({ row: { state: "starting" }, app: { ...rejected, unsettled: 1 } }, "wait")
    // What is tried next is what answers.
    does({ row: { state: "starting" }, app: rejected }, "unchoose")
    const left = { ...rejected, chosen: "older" }
    ends({ row: { state: "starting" }, app: left }, "failed", "never_healthy")
    const late = { state: "starting", stateAgeMs: 1_001 } as const
    does({ row: late, app: chosen }, "unchoose")
    ends({ row: late, app: { chosen: "older", chosenAt: at(10) } }, "failed", "timed_out")
  })

  it("waits for a container engine, and starts the one that is ours", () => {
    does({ silent: { startable: true, message: "down" } }, "startEngine")
    does({ silent: { startable: false, message: "down" } }, "wait")
    does({ row: { state: "fetching" }, silent: { startable: false, message: "down" } }, "wait")
  })
})
