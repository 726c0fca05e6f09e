/** A deployment that is cancelled, in each state that it can be cancelled in: it ends there, and nothing of it is left. */
import * as net from "node:net"
import { assert, layer } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import {
  answerOf,
  containersOf,
  deploy,
  makeShop,
  over,
  readApp,
  readDeployment,
  ready,
  server
} from "#test/apps/world.ts"
import { file } from "#test/builds/archives.ts"
import { buildPlane, deploySource, logOf } from "#test/builds/world.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Containers } from "#test/executions/world.ts"
import { sh } from "#test/setup/containers.ts"
import { Plane } from "#test/setup/control-plane.ts"
import { eventually } from "#test/setup/wait.ts"

const patience = 300_000

/** A registry that takes every connection and says nothing. */
class Silent extends Context.Service<Silent, { readonly host: string; readonly open: () => number }>()(
  "test/Silent"
) {
  static readonly layer = Layer.effect(
    Silent,
    Effect.map(
      Effect.acquireRelease(
        Effect.promise(async () => {
          const sockets = new Set<net.Socket>()
          const server = net.createServer((socket) => {
            sockets.add(socket)
            socket.on("error", () => undefined)
            socket.resume()
            socket.once("close", () => sockets.delete(socket))
          })
          await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
          return { server, sockets }
        }),
        ({ server, sockets }) =>
          Effect.sync(() => {
            for (const socket of sockets) socket.destroy()
            server.close()
          })
      ),
      ({ server, sockets }) => {
        const at = server.address()
        const port = typeof at === "object" && at !== null ? at.port : 0
        return { host: `127.0.0.1:${port}`, open: () => sockets.size }
      }
    )
  )
}

const world = Layer.merge(buildPlane(), Silent.layer)

/** A shop whose first version answers, and what there is of containers then. */
const shopWith = Effect.fnUntraced(function* (slug: string) {
  const { call } = yield* Plane
  const { path, host } = yield* makeShop(slug)
  const first = yield* deploy(path, server(slug))
  yield* ready(path, first)
  const containers = Effect.map(containersOf("svc.installation"), (names) => names.toSorted())
  const before = yield* containers
  const inState = (id: string, state: string) =>
    eventually(`it is ${state}`, readDeployment(path, id), (seen) => seen.state === state)
  const cancel = (id: string) =>
    Effect.map(call("POST", `${path}/deployments/${id}/cancel`), ({ status }) => status)
  /** It ended as cancelled, what answered before answers, and there are no other containers than before. */
  const isGone = Effect.fnUntraced(function* (id: string) {
    assert.deepInclude(yield* over(path, id), { state: "cancelled", errorCode: null, active: false })
    yield* eventually(
      "nothing of it is left",
      containers,
      (names) => JSON.stringify(names) === JSON.stringify(before)
    )
    assert.strictEqual(yield* answerOf(host), `200 ${slug}`)
    const app = yield* readApp(path)
    assert.deepStrictEqual([app.deploymentId, app.chosenDeploymentId], [first, first])
    assert.strictEqual(yield* cancel(id), 409)
  })
  return { path, inState, cancel, isGone }
})

layer(world, { excludeTestServices: true, timeout: "5 minutes" })("a cancelled deployment", (it) => {
  campaign(
    it.effect,
    "cancel-waiting",
    "a cancelled deployment that waits for its turn never begins",
    { rounds: 0, roundMs: patience },
    () =>
      Effect.gen(function* () {
        const engine = yield* Containers
        const { path, inState, cancel, isGone } = yield* shopWith("queued")
        yield* Effect.promise(engine.kill)
        const id = yield* deploy(path, server("never"))
        yield* inState(id, "queued")
        assert.strictEqual(yield* cancel(id), 202)
        assert.strictEqual((yield* over(path, id)).state, "cancelled")
        yield* Effect.promise(() => engine.restart())
        yield* isGone(id)
      })
  )

  it.effect(
    "whose image is being fetched needs it no more",
    () =>
      Effect.gen(function* () {
        const silent = yield* Silent
        const { path, inState, cancel, isGone } = yield* shopWith("fetching")
        const { call } = yield* Plane
        const made = yield* call("POST", `${path}/deployments`, {
          body: { image: `${silent.host}/acme/shop:1`, command: sh("exec busybox sleep 600") }
        })
        assert.strictEqual(made.status, 202, made.text)
        const id = String(made.body.id)
        yield* inState(id, "fetching")
        yield* eventually("the registry is asked", Effect.sync(silent.open), (open) => open > 0)
        assert.strictEqual(yield* cancel(id), 202)
        yield* isGone(id)
      }),
    patience
  )

  it.effect(
    "that is being built ends with its containers",
    () =>
      Effect.gen(function* () {
        const { path, inState, cancel, isGone } = yield* shopWith("building")
        const steps = { build: { build: "echo begun; sleep 600", start: "exec node x" } }
        const id = yield* deploySource(path, file("svc.yaml", JSON.stringify(steps)))
        yield* eventually("it runs", logOf(path, id), (text) => text.includes("\nbegun"))
        yield* inState(id, "building")
        assert.strictEqual(yield* cancel(id), 202)
        yield* isGone(id)
      }),
    patience
  )

  it.effect(
    "whose instances are not healthy yet ends with them",
    () =>
      Effect.gen(function* () {
        const { path, inState, cancel, isGone } = yield* shopWith("starting")
        const id = yield* deploy(path, sh("echo begun; exec busybox sleep 600"))
        yield* inState(id, "starting")
        const { call } = yield* Plane
        yield* eventually("its instance runs", call("GET", `${path}/app/instances`), ({ body }) =>
          body.some(
            (one: { deploymentId: string; startedAt: string | null }) =>
              one.deploymentId === id && one.startedAt !== null
          )
        )
        assert.strictEqual(yield* cancel(id), 202)
        yield* isGone(id)
      }),
    patience
  )
})
