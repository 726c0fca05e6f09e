import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Plane, testPlane } from "#test/setup/control-plane.ts"
import { freePort } from "#test/setup/postgres.ts"
import { eventually } from "#test/setup/wait.ts"
import { mailServer } from "./server.ts"

const port = await freePort()

layer(testPlane({ publicUrl: "https://svc.example" }, { SVC_SMTP_URL: `smtp://127.0.0.1:${port}` }), {
  excludeTestServices: true
})("an invitation", (it) => {
  it.effect("is made while the mail server is dead, and arrives when it is back", () =>
    Effect.gen(function* () {
      const { call, session, sql } = yield* Plane
      const body = { email: "far@example.com", role: "member" }
      const made = yield* call("POST", "/v1/orgs/main/invitations", { token: session, body })
      assert.strictEqual(made.status, 201)
      const tried = sql("select last_error from mail_outbox")
      yield* eventually("it was tried", tried, ([row]) => row?.["last_error"] !== null)
      const [waiting] = yield* sql("select state, template, last_error from mail_outbox")
      assert.deepStrictEqual([waiting?.["state"], waiting?.["template"]], ["waiting", "invitation"])
      assert.include(String(waiting?.["last_error"]), "ECONNREFUSED")
      const server = yield* mailServer(port)
      yield* server.start
      yield* eventually(
        "it arrives",
        Effect.sync(() => server.received.length > 0)
      )
      assert.deepStrictEqual(
        server.received.map(({ to }) => to),
        ["far@example.com"]
      )
      const link = /https:\/\/svc\.example\/invitation\?token=(svci_[0-9a-f]{64})/.exec(
        server.received[0]?.source ?? ""
      )
      assert.isNotNull(link)
    })
  )

  it.effect("that was taken back with its organization leaves no mail behind", () =>
    Effect.gen(function* () {
      const { sql, tenant } = yield* Plane
      const other = yield* tenant()
      yield* sql(`insert into mail_outbox (id, org_id, template, recipient, key_id, sealed, expires_at, due_at)
        values (gen_random_uuid(), '${other.id}', 'invitation', 'gone@example.com', 'k', 'x', now() + interval '1 day',
          now() + interval '1 hour')`)
      yield* sql(`delete from organization where id = '${other.id}'`)
      assert.deepStrictEqual(yield* sql("select 1 from mail_outbox where recipient = 'gone@example.com'"), [])
    })
  )
})
