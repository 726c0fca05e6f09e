import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Schedule from "effect/Schedule"
import { createClient } from "redis"
import { campaign } from "#test/campaigns/campaign.ts"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { connectionString } from "#test/setup/shown.ts"
import { eventually } from "#test/setup/wait.ts"

const base = "/v1/orgs/main/projects/shop/caches"
const input = { sku: "cache-n1", region: "local" }

const ping = (url: string, ca: string) =>
  Effect.promise(async () => {
    const client = createClient({
      url,
      socket: { tls: true, ca, reconnectStrategy: false, connectTimeout: 60_000 }
    })
    client.on("error", () => undefined)
    try {
      await client.connect()
      return await client.ping()
    } catch (error) {
      return String(error)
    } finally {
      if (client.isOpen) client.destroy()
    }
  })

layer(testPlane(), { excludeTestServices: true })("caches", (it) => {
  it.effect(
    "are created, read, changed, rotated and deleted, and a real client follows",
    () =>
      Effect.gen(function* () {
        const { call, session } = yield* Plane
        const project = yield* call("POST", "/v1/orgs/main/projects", {
          body: { name: "Shop", slug: "shop" }
        })
        assert.strictEqual(project.status, 201)
        const ca = (yield* call("GET", "/v1/ca.pem", { token: null })).text
        assert.include(ca, "BEGIN CERTIFICATE")

        const created = yield* call("POST", base, { body: { ...input, name: "one" } })
        assert.strictEqual(created.status, 201)
        const { id } = created.body
        const first = yield* connectionString(created, `${base}/${id}/credentials/rotate`)
        assert.strictEqual(yield* ping(first, ca), "PONG")

        const listed = yield* call("GET", base)
        assert.deepStrictEqual(
          listed.body.map((cache: { name: string }) => cache.name),
          ["one"]
        )
        const got = yield* call("GET", `${base}/${id}`)
        assert.deepStrictEqual([got.body.status, got.body.memoryMb], ["ready", 256])
        assert.strictEqual(got.body.tls, true)
        assert.match(got.headers.get("etag") ?? "", /^"\d+"$/)

        // The engine's reports give it a new revision as well: read and repeat.
        const patch = Effect.gen(function* () {
          const etag = (yield* call("GET", `${base}/${id}`)).headers.get("etag") ?? ""
          const headers = { "if-match": etag }
          return yield* call("PATCH", `${base}/${id}`, { body: { sku: "cache-s1" }, headers })
        })
        const patched = yield* eventually("nobody came between", patch, ({ status }) => status !== 412)
        assert.strictEqual(patched.status, 200)
        assert.strictEqual(patched.body.memoryMb, 1024)

        const rotated = yield* call("POST", `${base}/${id}/credentials/rotate`)
        assert.strictEqual(rotated.status, 200)
        assert.notStrictEqual(rotated.body.connectionString, first)
        assert.include(yield* ping(first, ca), "WRONGPASS")
        assert.strictEqual(yield* ping(rotated.body.connectionString, ca), "PONG")

        const byKey = yield* call("DELETE", `${base}/${id}`)
        assert.strictEqual(byKey.status, 403)
        assert.include(byKey.body.detail, "owner")
        const deleted = yield* call("DELETE", `${base}/${id}`, { token: session })
        assert.strictEqual(deleted.status, 200)
        const gone = yield* eventually(
          "it is gone",
          call("GET", `${base}/${id}`),
          ({ status }) => status === 404
        )
        assert.strictEqual(gone.body.code, "not_found")
        assert.notStrictEqual(yield* ping(rotated.body.connectionString, ca), "PONG")
      }),
    600_000
  )

  campaign(
    it.effect,
    "busy-cache",
    "are not called ready while a script keeps them busy, and a rotation then takes effect all the same",
    { roundMs: 600_000, rounds: 0 },
    () =>
      Effect.gen(function* () {
        const { call, sql } = yield* Plane
        const ca = (yield* call("GET", "/v1/ca.pem", { token: null })).text
        const project = yield* call("POST", "/v1/orgs/main/projects", {
          body: { name: "Busy", slug: "busy" }
        })
        assert.strictEqual(project.status, 201, project.text)
        const caches = "/v1/orgs/main/projects/busy/caches"
        const created = yield* call("POST", caches, { body: { ...input, name: "busy" } })
        const one = `${caches}/${created.body.id}`
        const first = yield* connectionString(created, `${one}/credentials/rotate`)
        yield* Effect.forkChild(
          Effect.promise(async () => {
            const client = createClient({ url: first, socket: { tls: true, ca, reconnectStrategy: false } })
            client.on("error", () => undefined)
            await client.connect()
            await client.eval("redis.call('set', 'a', 1) while true do end").catch(() => undefined)
          })
        )
        // Until the server has told somebody else so.
        yield* eventually("it is busy", ping(first, ca), (answer) => answer.includes("BUSY"))
        const rotate = Effect.tap(call("POST", `${one}/credentials/rotate`), ({ status, body, headers }) =>
          Effect.sync(() => {
            if (status === 200) return
            assert.deepStrictEqual([status, body.code], [503, "rotation_pending"])
            assert.match(headers.get("retry-after") ?? "", /^\d+$/)
          })
        )
        const rotating = yield* Effect.forkChild(
          eventually("it has rotated", rotate, ({ status }) => status === 200)
        )
        const until = (wanted: string) =>
          eventually(`it is ${wanted}`, call("GET", one), ({ body }): boolean => body.status === wanted)
        yield* until("provisioning")
        const listed = yield* call("GET", caches)
        assert.deepInclude(
          listed.body.map(({ name, status }: { name: string; status: string }) => [name, status]),
          ["busy", "provisioning"]
        )
        // The script's time passes: in truth it would cost half a minute of a processor.
        const longAgo = JSON.stringify(new Date(Date.now() - 3_600_000).toISOString())
        const aged = sql(
          `update resource set status = jsonb_set(status, '{unansweredSince}', '${longAgo}')
           where uid = '${created.body.id}' and status ? 'unansweredSince'`
        )
        const ageing = yield* Effect.forkChild(Effect.repeat(aged, Schedule.spaced("200 millis")))
        const rotated = yield* Fiber.join(rotating)
        yield* Fiber.interrupt(ageing)
        assert.include(yield* ping(first, ca), "WRONGPASS")
        assert.strictEqual(yield* ping(rotated.body.connectionString, ca), "PONG")
        yield* until("ready")
        const events = yield* call("GET", `/v1/orgs/main/resources/${created.body.id}/events`)
        const told = events.body.items.map(
          ({ type, reason }: { type: string; reason: string }) => `${type} ${reason}`
        )
        for (const event of ["Warning ScriptBusy", "Outside redis.shutDown", "Outside redis.start"])
          assert.include(told, event)
      })
  )

  it.effect("are refused with every field that is at fault", () =>
    Effect.gen(function* () {
      const { call } = yield* Plane
      const invalid = yield* call("POST", base, {
        body: { name: "X", sku: "huge", region: "local", extra: 1 }
      })
      assert.strictEqual(invalid.status, 422)
      assert.sameMembers(
        invalid.body.errors.map((error: { pointer: string }) => error.pointer),
        ["/name", "/sku", "/extra"]
      )
    })
  )
})
