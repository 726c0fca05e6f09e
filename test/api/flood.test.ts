/** Far more requests at once than a process takes: each is answered, and the process goes on. */
import * as net from "node:net"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { campaign } from "#test/campaigns/campaign.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { until } from "#test/setup/wait.ts"

/** Requests on each connection follow one another without waiting: the server begins with all of them. */
const [connections, onEach] = [2_500, 4]
const atOnce = connections * onEach

/** Connections that are all open. */
const crowd = (port: number) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const all = Array.from({ length: connections }, () => {
        const socket = net.connect(port, "127.0.0.1")
        const one = { socket, received: "", lost: undefined as Error | undefined }
        socket.on("data", (chunk: Buffer) => {
          one.received += chunk.toString("latin1")
        })
        socket.on("error", (error) => {
          one.lost = error
        })
        return one
      })
      await until("all are connected", () =>
        all.every(({ socket, lost }) => lost !== undefined || !socket.connecting)
      )
      return all
    }),
    (all) => Effect.sync(() => all.forEach(({ socket }) => void socket.destroy()))
  )

layer(testPlane({ roles: new Set(["api"] as const) }), { excludeTestServices: true, timeout: "2 minutes" })(
  "a flood",
  (it) => {
    campaign(
      it.effect,
      "flood",
      "10,000 requests at once are served or told when to come again, and the process answers afterwards",
      { rounds: 0, roundMs: 240_000 },
      () =>
        Effect.gen(function* () {
          const { url, apiKey, call } = yield* Plane
          const all = yield* crowd(Number(new URL(url).port))
          const health = Effect.map(call("GET", "/v1/health"), ({ status }) => status)
          const request = (last: boolean) =>
            ["GET /v1/orgs/main/projects HTTP/1.1", "host: 127.0.0.1", `authorization: Bearer ${apiKey}`]
              .concat(last ? ["connection: close"] : [], "", "")
              .join("\r\n")
          const requests = Array.from({ length: onEach }, (_, index) => request(index === onEach - 1)).join(
            ""
          )
          for (const { socket } of all) socket.write(requests)
          assert.strictEqual(yield* health, 200, "while they are worked on")
          yield* Effect.promise(() =>
            until("all are answered", () =>
              all.every(({ socket, lost }) => lost !== undefined || socket.closed)
            )
          )
          const lost = all.filter((one) => one.lost !== undefined)
          assert.isEmpty(lost.map((one) => one.lost?.message))
          const answers = all.flatMap(({ received }) => received.split(/(?=HTTP\/1\.1 \d{3} )/))
          assert.lengthOf(answers, atOnce)
          const byStatus = Map.groupBy(answers, (answer) => Number(answer.slice(9, 12)))
          const [served = [], ...refused] = [200, 429, 503].map((status) => byStatus.get(status))
          assert.lengthOf(
            [served, ...refused].flatMap((some) => some ?? []),
            atOnce,
            "others are none"
          )
          assert.isNotEmpty(served)
          for (const answer of refused.flatMap((some) => some ?? []))
            assert.match(answer, /\r\nretry-after: \d+\r\n/i)
          assert.strictEqual(yield* health, 200)
          // The rate limit of the key may still be used up.
          assert.include([200, 429], (yield* call("GET", "/v1/orgs/main/projects")).status)
          return Object.fromEntries([...byStatus].map(([status, some]) => [status, some.length]))
        })
    )
  }
)
