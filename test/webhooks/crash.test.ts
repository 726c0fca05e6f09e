/** Control planes as programs of their own, killed without warning while they deliver to a receiver that comes and goes. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { makePlane, planesWorld } from "#test/faults/planes.ts"
import { sleep, until } from "#test/faults/wait.ts"
import { receiver } from "#test/outbound/receiver.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { verified } from "./setting.ts"

const events = 150

it.live(
  "an event that was stored arrives, whoever is killed meanwhile",
  () =>
    Effect.gen(function* () {
      const { base, store, planes } = yield* planesWorld
      let away = false
      const there = yield* receiver((_, response) => {
        if (away) response.socket?.destroy()
        else response.writeHead(Math.random() < 0.3 ? 500 : 204).end()
      })
      const { caPem } = yield* CertificateAuthority
      const caFile = path.join(base, "ca.pem")
      fs.writeFileSync(caFile, caPem)
      yield* Effect.promise(async () => {
        for (const _ of [1, 2]) {
          const plane = await makePlane(base, store.url, { NODE_EXTRA_CA_CERTS: caFile })
          planes.push(plane)
          await plane.start()
        }
        const [first, second] = planes
        if (first === undefined || second === undefined) throw new Error("they did not start")
        const webhooks = "/v1/orgs/main/webhooks"
        const { body: made } = await first.call("POST", webhooks, {
          url: there.url(),
          events: ["budget.alert"]
        })
        const sql = postgres(store.url, { max: 1, onnotice: () => {} })
        try {
          const promised = new Set<string>()
          const promise = async () => {
            while (promised.size < events) {
              const answer = await second.call("POST", `${webhooks}/${made.id}/test`)
              assert.strictEqual(answer.status, 202)
              promised.add(answer.body.event.id)
            }
          }
          const murder = async () => {
            for (let round = 0; round < 3; round++) {
              await sleep(Math.random() * 600)
              away = round % 2 === 0
              await first.kill("SIGKILL")
              await first.start()
              away = false
            }
          }
          await Promise.all([promise(), murder()])
          await second.kill("SIGKILL")
          await until("everything has arrived", async () => {
            // Leases of the dead end, and what rests between two tries is due.
            await sql`update webhook_delivery set due_at = now() where state = 'waiting'`
            await sql`select pg_notify('svc_webhook', '')`
            await sleep(100)
            const [row] =
              await sql`select count(*)::int as late from webhook_delivery where state = 'waiting'`
            return row?.["late"] === 0
          })
          const [row] =
            await sql`select count(*)::int as lost from webhook_delivery where state <> 'delivered'`
          assert.strictEqual(row?.["lost"], 0)
          const arrived = new Set(there.received.map((got) => verified(made.secret, got).id))
          for (const id of promised) assert.isTrue(arrived.has(id), id)
        } finally {
          await sql.end()
        }
      })
    }).pipe(Effect.scoped, Effect.provide(CertificateAuthority.layer), Effect.provide(memorySecrets().layer)),
  120_000
)
