/** Whose address an app is told of, with a load balancer or a reverse proxy in front of the edge. */
import * as net from "node:net"
import * as tls from "node:tls"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { rawApp, startProxy } from "./proxy.ts"
import { environment, shop } from "./world.ts"

/** Each of them is an address of this machine. */
const [anybody, balancer, reverseProxy] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]

it.live("is that of the visitor, as those say who are set, and nobody else", () =>
  Effect.gen(function* () {
    const { port } = yield* rawApp
    const { httpsPort, caPem } = yield* startProxy([{ host: shop, environment, port }], {
      proxyProtocolFrom: [`${balancer}/32`],
      trustedProxies: [`${reverseProxy}/32`]
    })
    /** The address that the app is told, when somebody connects from there and says this before TLS and in its header. */
    const told = (from: string, before: string, forwarded?: string) =>
      Effect.promise(
        () =>
          new Promise<string>((resolve) => {
            const raw = net.connect({ host: "127.0.0.1", port: httpsPort, localAddress: from })
            raw.on("error", () => {})
            if (before !== "") raw.write(before)
            const socket = tls.connect({ socket: raw, servername: shop, ca: caPem })
            let text = ""
            socket.once("secureConnect", () =>
              socket.write(
                `GET / HTTP/1.1\r\nHost: ${shop}\r\n${forwarded === undefined ? "" : `X-Forwarded-For: ${forwarded}\r\n`}Connection: close\r\n\r\n`
              )
            )
            socket.on("data", (chunk: Buffer) => {
              text += chunk.toString()
            })
            socket.on("error", () => {})
            socket.once("close", () =>
              resolve(
                text === ""
                  ? "no answer"
                  : [...text.matchAll(/\r\nx-forwarded-for: ([^\r]*)/gi)]
                      .map(([, value]) => value)
                      .join(" and ")
              )
            )
          })
      )
    const header = (family: string, visitor: string, edge: string) =>
      `PROXY ${family} ${visitor} ${edge} 50000 443\r\n`
    const forged = "198.51.100.1, 203.0.113.9"

    assert.strictEqual(yield* told(anybody, ""), anybody)
    assert.strictEqual(yield* told(anybody, "", forged), anybody)
    assert.strictEqual(yield* told(anybody, header("TCP4", "203.0.113.7", "192.0.2.1")), "no answer")

    assert.strictEqual(yield* told(balancer, header("TCP4", "203.0.113.7", "192.0.2.1")), "203.0.113.7")
    assert.strictEqual(
      yield* told(balancer, header("TCP6", "2001:db8::7", "2001:db8::1"), forged),
      "2001:db8::7"
    )
    assert.strictEqual(yield* told(balancer, ""), "no answer")

    assert.strictEqual(yield* told(reverseProxy, "", forged), "203.0.113.9")
    assert.strictEqual(yield* told(reverseProxy, ""), reverseProxy)
  }).pipe(Effect.scoped)
)
