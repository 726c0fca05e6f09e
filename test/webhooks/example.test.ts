import { spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import { Outbound } from "#src/outbound/Outbound.ts"
import { makeOrganization } from "#test/setup/fixtures.ts"
import { freePort } from "#test/setup/postgres.ts"
import { deliverer, fixture, happens, stored, subscribe, until } from "./setting.ts"

const program = fileURLToPath(new URL("../../examples/webhook-receiver/receiver.ts", import.meta.url))

layer(fixture, { excludeTestServices: true, timeout: "3 minutes" })("the example of a receiver", (it) => {
  it.effect("runs as it is, takes what we sign and refuses what somebody else sends", () =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
        (name) => Effect.sync(() => fs.rmSync(name, { recursive: true }))
      )
      const [certFile, keyFile] = [path.join(folder, "cert.pem"), path.join(folder, "key.pem")]
      const issued = yield* (yield* CertificateAuthority).issue({ hosts: ["localhost"] })
      fs.writeFileSync(certFile, issued.certificatePem)
      fs.writeFileSync(keyFile, Redacted.value(issued.privateKeyPem), { mode: 0o600 })
      const port = yield* Effect.promise(freePort)
      const url = `https://localhost:${port}/`
      const org = yield* makeOrganization()
      const hook = yield* subscribe(org.id, url)
      const said: Array<string> = []
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          const child = spawn(process.execPath, [program], {
            env: { PORT: String(port), WEBHOOK_SECRET: hook.secret, TLS_CERT: certFile, TLS_KEY: keyFile }
          })
          for (const stream of [child.stdout, child.stderr])
            stream.on("data", (chunk: Buffer) => said.push(chunk.toString()))
          return child
        }),
        (child) => Effect.sync(() => child.kill("SIGKILL"))
      )
      const output = Effect.sync(() => said.join(""))
      yield* until(output, (text) => text.includes("Listening"))
      const { post } = yield* Outbound
      const forged = yield* post({ url, headers: {}, body: "{}", timeoutMs: 60_000 })
      assert.strictEqual(forged.status, 401)
      yield* deliverer
      yield* happens(org.id, "budget.alert", { spent: 80 })
      yield* until(stored(hook.id), ([row]) => row?.state === "delivered")
      assert.include(yield* until(output, (text) => text.includes("spent")), '"data":{"spent":80}')
    })
  )
})
