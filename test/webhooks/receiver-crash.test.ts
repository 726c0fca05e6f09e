/** A receiver that is killed without warning again and again, and processes whose clocks are wrong. */
import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, layer } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import * as deliver from "#src/webhooks/deliver.ts"
import { campaign } from "#test/campaigns/campaign.ts"
import { Seeded } from "#test/engine/simulation/random.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"
import { freePort } from "#test/setup/postgres.ts"
import {
  deliverer,
  fixture,
  happens,
  hasten,
  listener,
  stored,
  subscribe,
  until,
  verified
} from "./setting.ts"

const program = fileURLToPath(new URL("./receiver-process.mjs", import.meta.url))

/** A receiver that can be started and killed, and what it took over all of its lives. */
const mortal = Effect.gen(function* () {
  // An address of its own: nobody else takes the port while it is dead.
  const [a = 0, b = 0, c = 0] = randomBytes(3)
  const address = process.platform === "linux" ? `127.${1 + (a % 250)}.${b}.${1 + (c % 250)}` : "127.0.0.1"
  const { certificatePem, privateKeyPem } = yield* (yield* CertificateAuthority).issue({
    hosts: [address]
  })
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
  const file = (name: string) => path.join(folder, name)
  fs.writeFileSync(file("cert.pem"), certificatePem)
  fs.writeFileSync(file("key.pem"), Redacted.value(privateKeyPem), { mode: 0o600 })
  fs.writeFileSync(file("log"), "")
  const port = yield* Effect.promise(() => freePort())
  let child: ChildProcess | undefined
  const kill = Effect.promise(
    () =>
      new Promise<void>((resolve) => {
        if (child === undefined || child.exitCode !== null || child.signalCode !== null) return resolve()
        child.once("exit", () => resolve())
        child.kill("SIGKILL")
      })
  )
  yield* Effect.addFinalizer(() =>
    Effect.andThen(
      kill,
      Effect.sync(() => fs.rmSync(folder, { recursive: true }))
    )
  )
  const start = Effect.promise(
    () =>
      new Promise<void>((resolve, reject) => {
        const args = [program, address, String(port), file("cert.pem"), file("key.pem"), file("log")]
        child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] })
        child.stdout?.once("data", () => resolve())
        child.once("error", reject)
      })
  )
  const took = () =>
    fs
      .readFileSync(file("log"), "utf8")
      .split("\n")
      // A line may be half a one: nobody was told that it arrived.
      .flatMap((line) => {
        try {
          return [JSON.parse(line) as Parameters<typeof verified>[1]]
        } catch {
          return []
        }
      })
  return { url: `https://${address}:${port}`, start, kill, took }
})

layer(fixture, { excludeTestServices: true, timeout: "3 minutes" })("deliveries", (it) => {
  campaign(
    it.effect,
    "receiver-kills",
    "deliveries arrive all at a receiver that is killed again and again while it takes them",
    {},
    Effect.fnUntraced(function* ({ seed, full }) {
      const random = new Seeded(seed)
      const lives = full ? 6 : 2
      const ofALife = 66
      const events = lives * ofALife
      const receiver = yield* mortal
      yield* receiver.start
      const { id: orgId } = yield* makeOrganization()
      const { id, secret } = yield* subscribe(orgId, receiver.url)
      yield* deliverer
      yield* deliverer
      for (let life = 0; life < lives; life++) {
        const before = receiver.took().length
        // It dies in the middle of its work, whenever that is.
        const death = until(
          Effect.andThen(
            hasten,
            Effect.sync(() => receiver.took().length)
          ),
          (n) => n > before + 20
        ).pipe(
          Effect.andThen(Effect.suspend(() => Effect.sleep(random.between(0, 20)))),
          Effect.andThen(receiver.kill),
          Effect.andThen(receiver.start)
        )
        const happening = Effect.forEach(
          Array.from({ length: ofALife }),
          (_, n) => happens(orgId, "budget.alert", { n: life * ofALife + n }),
          { discard: true }
        )
        yield* Effect.all([death, happening], { concurrency: 2 })
      }
      const rows = yield* until(Effect.andThen(hasten, stored(id)), (all) =>
        all.every(({ state }) => state !== "waiting")
      )
      assert.lengthOf(rows, events)
      assert.isTrue(rows.every(({ state }) => state === "delivered"))
      const numbers = new Set(receiver.took().map((got) => verified(secret, got).data.n))
      assert.strictEqual(numbers.size, events)
    })
  )

  it.effect(
    "are signed, recorded and repeated by the store's clock, whatever time their process believes",
    () =>
      Effect.gen(function* () {
        const hour = 3_600_000
        let offset = hour
        const real = yield* Clock.Clock
        const wrong = Layer.succeed(Clock.Clock, {
          ...real,
          sleep: (duration) => real.sleep(duration),
          currentTimeMillisUnsafe: () => real.currentTimeMillisUnsafe() + offset,
          currentTimeMillis: Effect.sync(() => real.currentTimeMillisUnsafe() + offset),
          currentTimeNanosUnsafe: () => real.currentTimeNanosUnsafe(),
          currentTimeNanos: real.currentTimeNanos,
          monotonicTimeNanosUnsafe: () => real.monotonicTimeNanosUnsafe()
        })
        yield* Layer.build(Layer.fresh(deliver.layer)).pipe(Effect.provide(wrong))
        let answers = 0
        const one = yield* listener((_, response) => {
          // It jumps while the answer is on its way.
          offset = offset > 0 ? -hour : hour
          response.writeHead(++answers === 1 ? 500 : 204).end()
        })
        yield* happens(one.orgId)
        const [failed] = yield* until(stored(one.id), ([row]) => (row?.attempts.length ?? 0) > 0)
        const [attempt] = failed?.attempts ?? []
        if (failed === undefined || attempt === undefined) return assert.fail("it was not tried")
        // Counted from when it failed, which is less than the hour that the clock is off.
        const rest = failed.dueAt.getTime() - Date.parse(attempt.startedAt) - attempt.durationMs
        assert.isTrue(rest > 4_900 && rest < 600_000, String(rest))
        yield* hasten
        const [done] = yield* until(stored(one.id), ([row]) => row?.state === "delivered")
        assert.lengthOf(one.received, 2)
        // The library refuses what is more than five minutes off.
        for (const got of one.received) verified(one.secret, got)
        for (const { startedAt, durationMs } of done?.attempts ?? []) {
          assert.isBelow(Math.abs(Date.parse(startedAt) - Date.now()), 600_000)
          assert.isTrue(durationMs >= 0 && durationMs < 600_000, String(durationMs))
        }
      })
  )
})
