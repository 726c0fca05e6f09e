/** Control planes as programs of their own, killed without warning while they deliver to a receiver that comes and goes. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { makePlane, planesOnSharedServer } from "#test/faults/planes.ts"
import { receiver } from "#test/outbound/receiver.ts"
import { memorySecrets } from "#test/setup/memory-secrets.ts"
import { sleep, until } from "#test/setup/wait.ts"
import { verified } from "./setting.ts"

campaign(
  it.live,
  "webhook-kills",
  "an event that was stored arrives, whoever is killed meanwhile",
  // A try whose process was killed is shown by the suite of leased loops, and refusals with two processes beside it.
  { roundMs: 900_000, rounds: 0 },
  ({ seed, full }) =>
    Effect.gen(function* () {
      const random = new Seeded(seed)
      const [events, kills] = full ? [150, 3] : [60, 2]
      const { base, store, planes } = yield* planesOnSharedServer
      let away = false
      let secret = ""
      const arrived = new Set<string>()
      const refusals = new Map<string, number>()
      const there = yield* receiver((request, response) => {
        if (away) return void response.socket?.destroy()
        const { id } = verified(secret, request)
        // Never so often that chance alone takes all the tries that an event has.
        const before = refusals.get(id) ?? 0
        const refused = before < 3 && random.chance(0.3)
        if (refused) refusals.set(id, before + 1)
        else arrived.add(id)
        response.writeHead(refused ? 500 : 204).end()
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
        secret = made.secret
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
            for (let kill = 0; kill < kills; kill++) {
              await sleep(random.between(0, 600))
              away = kill % 2 === 0
              await first.kill("SIGKILL")
              await first.start()
              away = false
            }
          }
          await Promise.all([promise(), murder()])
          await second.kill("SIGKILL")
          // The leases of the dead end.
          await sql`update webhook_delivery set due_at = now() where state = 'waiting'`
          await until(
            "everything has arrived",
            async () => {
              // What rests between two tries is due.
              await sql`update webhook_delivery set due_at = now() where state = 'waiting' and lease_token is null`
              await sql`select pg_notify('svc_webhook', '')`
              await sleep(100)
              const [row] =
                await sql`select count(*)::int as late from webhook_delivery where state = 'waiting'`
              return row?.["late"] === 0
            },
            180
          )
          const [row] =
            await sql`select count(*)::int as lost from webhook_delivery where state <> 'delivered'`
          assert.strictEqual(row?.["lost"], 0)
          for (const id of promised) assert.isTrue(arrived.has(id), id)
        } finally {
          await sql.end()
        }
      })
    }).pipe(Effect.provide(CertificateAuthority.layer), Effect.provide(memorySecrets().layer))
)
