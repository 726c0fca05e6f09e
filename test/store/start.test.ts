/** What a start says when the store and the settings do not fit together. */
import { spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { migratedDatabase } from "#test/setup/database.ts"
import { freePort } from "#test/setup/postgres.ts"
import { sweep } from "#test/setup/processes.ts"

const program = fileURLToPath(new URL("../../src/cli/svc.mjs", import.meta.url))
const folder = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))),
  (base) => Effect.promise(() => sweep(base))
)

/** Starts the program and ends it once it serves; answers how it ended and what it said. */
const start = async (base: string, settings: Record<string, string>) => {
  const [port, metricsPort] = await Promise.all([freePort(), freePort()])
  const child = spawn(process.execPath, [program, "up", "--no-apply"], {
    cwd: base,
    env: {
      PATH: process.env["PATH"],
      SVC_DATA_DIR: path.join(base, "data"),
      XDG_CONFIG_HOME: path.join(base, "config"),
      SVC_PORT: String(port),
      SVC_METRICS_PORT: String(metricsPort),
      SVC_ROLES: "api,engine",
      ...settings
    },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: 240_000,
    killSignal: "SIGKILL"
  })
  let said = ""
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk: Buffer) => {
      said += chunk.toString()
      if (said.includes("Ctrl-C stops")) child.kill("SIGTERM")
    })
  }
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve))
  return { code, lines: said.trim().split("\n") }
}

it.live(
  "a ring without a key that is in use stops the start with one line that names the key",
  () =>
    Effect.gen(function* () {
      const base = yield* folder
      const url = Redacted.value(yield* migratedDatabase)
      const key = (name: string) => `${name}:${randomBytes(32).toString("base64")}`
      const [first, second] = [key("spring"), key("autumn")]
      yield* Effect.promise(async () => {
        const up = (keys: string) => start(base, { SVC_DATABASE_URL: url, SVC_ENCRYPTION_KEYS: keys })
        assert.strictEqual((await up(first)).code, 0)
        const refused = await up(second)
        assert.strictEqual(refused.code, 1)
        const about = refused.lines.filter((line) => line.includes("spring"))
        assert.deepStrictEqual(about, refused.lines.slice(-1))
        assert.match(about[0] ?? "", /sealed with the key "spring".*has only "autumn".*SVC_ENCRYPTION_KEYS/)
        assert.strictEqual((await up(`${second},${first}`)).code, 0)
      })
    }).pipe(Effect.scoped),
  600_000
)

it.live(
  "a store that cannot be reached stops the start without telling its password",
  () =>
    Effect.gen(function* () {
      const base = yield* folder
      const port = yield* Effect.promise(freePort)
      const password = `canary-${randomBytes(9).toString("hex")}`
      const { code, lines } = yield* Effect.promise(() =>
        start(base, { SVC_DATABASE_URL: `postgres://svc:${password}@127.0.0.1:${port}/svc` })
      )
      assert.strictEqual(code, 1)
      assert.include(lines.at(-1) ?? "", "state store")
      assert.notInclude(lines.join("\n"), password)
    }).pipe(Effect.scoped),
  600_000
)
