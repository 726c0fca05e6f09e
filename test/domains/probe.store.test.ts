/** Handshakes with edges that behave in one way or another. */
import * as net from "node:net"
import * as tls from "node:tls"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "#src/config.ts"
import { Probe } from "#src/domains/Probe.ts"
import { type EdgeNode, EdgeNodes } from "#src/edge/EdgeNodes.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { PlatformSecrets } from "#src/store/Secrets.ts"
import { testDb } from "#test/setup/database.ts"
import { freePort } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"

const unused = Effect.die(new Error("not used here"))
const live: Array<EdgeNode> = []
const world = Probe.layer.pipe(
  Layer.provide(
    Layer.succeed(EdgeNodes, {
      live: Effect.sync(() => live),
      ask: unused,
      askAll: unused,
      beat: () => unused,
      answer: () => unused,
      leave: () => unused
    })
  ),
  Layer.provideMerge(CertificateAuthority.layer),
  Layer.provideMerge(PlatformSecrets.layer),
  Layer.provideMerge(KeyRing.layerEphemeral),
  Layer.provideMerge(testDb()),
  Layer.provideMerge(AppConfig.layerFrom({}))
)

const host = "www.example.com"

const listening = <S extends net.Server>(make: () => S) =>
  Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<S>((resolve) => {
          const server = make()
          server.listen(0, "127.0.0.1", () => resolve(server))
        })
    ),
    (server) => Effect.promise(() => new Promise<void>((resolve) => server.close(() => resolve())))
  )
const nodeOf = (server: net.Server): EdgeNode => {
  const address = server.address()
  return {
    id: "node",
    address: "127.0.0.1",
    httpsPort: typeof address === "object" ? (address?.port ?? 0) : 0
  }
}

layer(world, { excludeTestServices: true })("what edges serve", (it) => {
  /** An edge with a certificate of the platform's authority, and its connections. */
  const edge = Effect.fnUntraced(function* (name: string) {
    const { issue } = yield* CertificateAuthority
    const { certificatePem, privateKeyPem } = yield* issue({ hosts: [name] })
    const open = new Set<net.Socket>()
    const server = yield* listening(() =>
      tls
        .createServer({ cert: certificatePem, key: Redacted.value(privateKeyPem) })
        .on("connection", (socket) => {
          open.add(socket)
          socket.on("error", () => {}).once("close", () => open.delete(socket))
        })
    )
    return { node: nodeOf(server), open }
  })
  const served = (...nodes: ReadonlyArray<EdgeNode>) =>
    Effect.gen(function* () {
      live.splice(0, live.length, ...nodes)
      return yield* (yield* Probe).served(host)
    })

  it.effect("is told after a good handshake, whose connection is closed", () =>
    Effect.gen(function* () {
      const { node, open } = yield* edge(host)
      for (let round = 0; round < 5; round++) {
        assert.strictEqual((yield* served(node))._tag, "Everywhere")
      }
      yield* eventually(
        "the edge sees every connection closed",
        Effect.sync(() => open.size),
        (size) => size === 0
      )
    }).pipe(Effect.scoped)
  )

  it.effect(
    "is wrong where one answers with another name's certificate, and unknown where one is silent",
    () =>
      Effect.gen(function* () {
        const good = yield* edge(host)
        const wrong = yield* edge("other.example.com")
        const hangsUp = nodeOf(
          yield* listening(() => net.createServer((socket) => void socket.on("error", () => {}).destroy()))
        )
        const gone = { ...good.node, httpsPort: yield* Effect.promise(() => freePort()) }
        const not = yield* served(good.node, gone, wrong.node)
        assert.deepStrictEqual(
          [not._tag, "message" in not ? not.message : ""],
          ["Not", `An edge does not serve ${host} as it should: its certificate is another name's`]
        )
        for (const silent of [gone, hangsUp])
          assert.strictEqual((yield* served(good.node, silent))._tag, "NoAnswer")
        assert.strictEqual((yield* served())._tag, "NoEdge")
      }).pipe(Effect.scoped)
  )
})
