/** Behind a proxy that serves the control plane below a path of its own, which it takes away from what it passes on. */
import * as http from "node:http"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { freePort } from "#test/setup/postgres.ts"

const prefix = "/svc"
const [port, proxyPort] = await Promise.all([freePort(), freePort()])
const origin = `http://127.0.0.1:${proxyPort}`

const proxy = Layer.effectDiscard(
  Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<http.Server>((resolve) => {
          const server = http.createServer((request, response) => {
            const { url = "", method, headers } = request
            if (!url.startsWith(`${prefix}/`)) return void response.writeHead(404).end("elsewhere")
            const on = http.request({ port, method, headers, path: url.slice(prefix.length) }, (answer) => {
              response.writeHead(answer.statusCode ?? 502, answer.headers)
              answer.pipe(response)
            })
            on.on("error", () => response.destroy())
            request.pipe(on)
          })
          server.listen(proxyPort, "127.0.0.1", () => resolve(server))
        })
    ),
    (server) =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )
)
const plane = testPlane({ port, publicUrl: `${origin}${prefix}` })

layer(Layer.merge(plane, proxy), { excludeTestServices: true })("pages below a path", (it) => {
  it.effect("lead to each other and to the dashboard, and nowhere out of it", () =>
    Effect.gen(function* () {
      const { signInUrl } = yield* Plane
      const get = (path: string, init: RequestInit = {}) =>
        Effect.promise(async () => {
          const response = await fetch(new URL(path, origin), { redirect: "manual", ...init })
          return { status: response.status, headers: response.headers, text: await response.text() }
        })
      const stranger = yield* get("/svc/account")
      assert.strictEqual(stranger.headers.get("location"), "/svc/sign-in?next=%2Faccount")
      const signIn = yield* get("/svc/sign-in?next=%2Fapp%2Fmain")
      const led = [...signIn.text.matchAll(/(?:href|action)="([^"]*)"/g)].flatMap(([, to = ""]) =>
        to.startsWith("data:") ? [] : [to]
      )
      assert.isAbove(led.length, 3)
      assert.deepStrictEqual(
        led.filter((to) => !to.startsWith("/svc/")),
        []
      )
      assert.include(signIn.text, 'name="next" value="/app/main"')

      assert.isTrue(signInUrl.startsWith(`${origin}/svc/sign-in/link?token=`))
      const asked = yield* get(signInUrl)
      const [, action = ""] = /action="([^"]+)"/.exec(asked.text) ?? []
      const hidden = [...asked.text.matchAll(/type="hidden" name="([^"]+)" value="([^"]*)"/g)]
      const signedIn = yield* get(action, {
        method: "POST",
        headers: { origin, "content-type": "application/x-www-form-urlencoded" },
        body: new URLSearchParams(hidden.map(([, name = "", value = ""]) => [name, value])).toString()
      })
      assert.strictEqual(signedIn.status, 303, signedIn.text)
      const to = signedIn.headers.get("location") ?? ""
      assert.match(to, /^\/svc\/(app|account)/)
      const [cookie = ""] = (signedIn.headers.get("set-cookie") ?? "").split(";")
      const there = yield* get(to, { headers: { cookie } })
      assert.strictEqual(there.status, 200, there.text)
      const me = yield* get("/svc/v1/me", { headers: { cookie } })
      assert.strictEqual(me.status, 200, me.text)
      const app = yield* get("/svc/app", { headers: { cookie } })
      assert.strictEqual(app.headers.get("location"), "/svc/app/")
    })
  )
})
