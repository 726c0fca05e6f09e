/** Images of registries that nobody has vouched for: fetched whole, and from nowhere that requests may not go. */
import * as http from "node:http"
import type { AddressInfo } from "node:net"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AppConfig } from "#src/config.ts"
import { Images } from "#src/executions/Images.ts"
import { ContainerEngine } from "#src/infra/containers/ContainerEngine.ts"
import { Host } from "#src/infra/host/Host.ts"
import { Containers } from "./world.ts"

/** Of this machine's addresses requests may go to one, as if the other were of a network that only it reaches. */
const [open, shut] = ["127.0.0.1", "127.0.0.2"]

const images = Layer.unwrap(
  Effect.map(Containers, ({ folder, socket }) =>
    Images.layer.pipe(
      Layer.provideMerge(ContainerEngine.layer),
      Layer.provide(Host.layer),
      Layer.provide(
        AppConfig.layerWith(
          { dataDir: folder, containerSocket: socket, outboundAllow: [`${open}/32`] },
          { SVC_REGISTRIES: "" }
        )
      )
    )
  )
).pipe(Layer.provideMerge(Containers.layer))

const listening = (address: string, handler: http.RequestListener) =>
  Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<http.Server>((resolve) => {
          const server = http.createServer(handler)
          server.listen(0, address, () => resolve(server))
        })
    ),
    (server) =>
      Effect.sync(() => {
        server.closeAllConnections()
        server.close()
      })
  ).pipe(
    Effect.map((server) => {
      const at: AddressInfo | string | null = server.address()
      return `${address}:${typeof at === "object" ? at?.port : 0}`
    })
  )

interface Asked {
  readonly path: string
  readonly authorization: string | undefined
}
interface Twist {
  /** Answers it itself: true. Everything else is the real registry's. */
  readonly answer?: (request: http.IncomingMessage, response: http.ServerResponse) => boolean
  /** Changes what the real one sends. */
  readonly change?: (path: string, content: Buffer) => Buffer
}

/** A registry that passes on what a real one says, but for its own twist. */
const twisted = Effect.fnUntraced(function* (real: string, { answer, change }: Twist) {
  const asked: Array<Asked> = []
  const host = yield* listening(open, (request, response) => {
    const path = request.url ?? "/"
    asked.push({ path, authorization: request.headers.authorization })
    if (answer?.(request, response) === true) return
    const headers = { accept: request.headers.accept ?? "*/*" }
    http.get(`http://${real}${path}`, { headers, agent: false }, (from) => {
      const chunks: Array<Buffer> = []
      from.on("data", (chunk: Buffer) => chunks.push(chunk))
      from.once("end", () => {
        const content = Buffer.concat(chunks)
        response.writeHead(from.statusCode ?? 500, { "content-type": from.headers["content-type"] ?? "" })
        response.end(change?.(path, content) ?? content)
      })
    })
  })
  return { host, asked }
})

const redirectTo = (response: http.ServerResponse, location: string) => {
  response.writeHead(307, { location }).end()
  return true
}
const pullOf = (reference: string) =>
  Effect.flatMap(Images, ({ pullNamed }) => pullNamed({ reference, credentials: undefined }, 20_000))
const refusalOf = (reference: string) => Effect.map(Effect.flip(pullOf(reference)), ({ message }) => message)

/** Something that only this machine reaches, and what reached it. */
const inside = Effect.gen(function* () {
  const reached: Array<string> = []
  const host = yield* listening(shut, (request, response) => {
    reached.push(request.url ?? "")
    response.end("{}")
  })
  return { host, reached }
})

layer(images, { excludeTestServices: true, timeout: "3 minutes" })("an image of any registry", (it) => {
  it.effect("from one that leads to where it may not is refused, and nothing there is asked", () =>
    Effect.gen(function* () {
      const { openRegistry, podman } = yield* Containers
      const { host: there, reached } = yield* inside
      const ways: Readonly<Record<string, NonNullable<Twist["answer"]>>> = {
        "of tokens": ({ url = "" }, response) => {
          if (url === "/v2/") return false
          response.writeHead(401, { "www-authenticate": `Bearer realm="http://${there}/token",service="x"` })
          response.end()
          return true
        },
        "of manifests": ({ url = "" }, response) =>
          url.includes("/manifests/") && redirectTo(response, `http://${there}${url}`),
        "of blobs": ({ url = "" }, response) =>
          url.includes("/blobs/") && redirectTo(response, `http://${there}${url}`),
        "of the second step": ({ url = "" }, response) =>
          url.includes("/blobs/") &&
          redirectTo(response, url.includes("?again") ? `http://${there}${url}` : `${url}?again`)
      }
      for (const [name, answer] of Object.entries(ways)) {
        const { host, asked } = yield* twisted(openRegistry, { answer })
        const message = yield* refusalOf(`${host}/test/box:1`)
        assert.match(message, /requests do not go there|which is denied/, name)
        assert.isAbove(asked.length, 1, name)
      }
      // Also by its own name.
      assert.match(yield* refusalOf(`${there}/test/box:1`), /requests do not go there/)
      assert.deepStrictEqual(reached, [])
      assert.strictEqual(podman("images", "-a", "-q"), "")
    })
  )

  it.effect("with content of another digest is refused, and the engine has none of it", () =>
    Effect.gen(function* () {
      const { openRegistry, podman } = yield* Containers
      const manifest = yield* Effect.promise(async () => {
        const accept = "application/vnd.oci.image.manifest.v1+json"
        const answer = await fetch(`http://${openRegistry}/v2/test/box/manifests/1`, { headers: { accept } })
        return {
          digest: answer.headers.get("docker-content-digest"),
          content: JSON.parse(await answer.text())
        }
      })
      const { layers, config } = manifest.content
      for (const [version, digest] of [
        [":1", layers.at(-1).digest],
        [":1", config.digest],
        [`@${manifest.digest}`, manifest.digest]
      ]) {
        const { host } = yield* twisted(openRegistry, {
          change: (path, content) => {
            if (!path.endsWith(digest)) return content
            const other = Buffer.from(content)
            other[20] = (other[20] ?? 0) ^ 1
            return other
          }
        })
        assert.match(yield* refusalOf(`${host}/test/box${version}`), /another digest/)
      }
      // One that goes on longer than it was said to, as if it would fill the disk.
      const { host } = yield* twisted(openRegistry, {
        change: (path, content) =>
          path.endsWith(layers.at(-1).digest) ? Buffer.concat([content, content]) : content
      })
      assert.match(yield* refusalOf(`${host}/test/box:1`), /longer than the manifest says/)
      assert.strictEqual(podman("images", "-a", "-q"), "")
    })
  )

  it.effect("is fetched with a token, and from where its blobs are, which is not told the token", () =>
    Effect.gen(function* () {
      const { openRegistry, podman } = yield* Containers
      const storage = yield* twisted(openRegistry, {})
      const tokens: Array<string> = []
      const auth = yield* listening(open, (request, response) => {
        tokens.push(request.url ?? "")
        response.end(JSON.stringify({ token: "t-4711" }))
      })
      const { host } = yield* twisted(openRegistry, {
        answer: ({ url = "", headers }, response) => {
          if (url === "/v2/") return false
          if (headers.authorization !== "Bearer t-4711") {
            response.writeHead(401, { "www-authenticate": `Bearer realm="http://${auth}/token",service="x"` })
            response.end()
            return true
          }
          return url.includes("/blobs/") && redirectTo(response, `http://${storage.host}${url}`)
        }
      })
      const { id, digest } = yield* pullOf(`${host}/test/box:1`)
      assert.deepStrictEqual(tokens, ["/token?service=x&scope=repository%3Atest%2Fbox%3Apull"])
      assert.isAbove(storage.asked.length, 1)
      assert.isTrue(storage.asked.every(({ authorization }) => authorization === undefined))
      assert.match(String(digest), /^sha256:[0-9a-f]{64}$/)
      assert.strictEqual(
        podman(
          "run",
          "--rm",
          "--network=none",
          "--ulimit=nofile=1024:1024",
          "--ulimit=nproc=1024:1024",
          id,
          "/bin/busybox",
          "echo",
          "runs"
        ),
        "runs"
      )
      assert.include(podman("images", "--format", "{{.Repository}}:{{.Tag}}"), `${host}/test/box:1`)

      // The engine has it: that it may be had is shown by its configuration, and no layer is sent again.
      storage.asked.length = 0
      const again = yield* pullOf(`${host}/test/box@${digest}`)
      assert.deepStrictEqual(again, { id, digest })
      assert.lengthOf(storage.asked, 1)
      // One that only names it gets nothing.
      const { host: claims } = yield* twisted(openRegistry, {
        answer: ({ url = "" }, response) => {
          if (!url.includes("/blobs/")) return false
          response.writeHead(404).end()
          return true
        }
      })
      assert.match(yield* refusalOf(`${claims}/test/box@${digest}`), /was not found/)
      yield* Effect.flatMap(Images, ({ release }) => release(id))
      assert.strictEqual(podman("images", "-a", "-q"), "")
    })
  )
})
