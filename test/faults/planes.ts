/** Control planes as programs of their own, and the store they share. */
import { type ChildProcess, spawn } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import postgres from "postgres"
import { migratedDatabase } from "#test/setup/database.ts"
import { freePort, startPostgres } from "#test/setup/postgres.ts"
import { sweep } from "#test/setup/processes.ts"
import { until } from "#test/setup/wait.ts"

const current = fileURLToPath(new URL("../../src/cli/svc.mjs", import.meta.url))

export interface Plane {
  readonly start: () => Promise<void>
  readonly kill: (signal: NodeJS.Signals) => Promise<void>
  /**
   * Kills it without warning, and lets its leases end now instead of half a minute later. Only for the one process of
   * a store: the leases of others would end as well.
   */
  readonly crash: () => Promise<void>
  /** Sends a signal that ends nothing. */
  readonly signal: (signal: NodeJS.Signals) => void
  readonly call: (
    method: string,
    target: string,
    body?: unknown,
    timeoutMs?: number
    // biome-ignore lint/suspicious/noExplicitAny: tests look at what came, whatever it is.
  ) => Promise<{ status: number; body: any }>
  readonly url: string
  readonly alive: () => boolean
  readonly log: () => string
}

/**
 * Where the servers of one world listen. Other tests run beside it, and a port that is reserved here while its server
 * is down must not be taken by one of theirs: on Linux all of 127/8 is loopback, so each world has an address.
 */
const ownLoopback = (base: string): string => {
  if (process.platform !== "linux") return "127.0.0.1"
  const [a = 0, b = 0, c = 0] = createHash("sha256").update(base).digest()
  return `127.${1 + (a % 250)}.${b}.${1 + (c % 250)}`
}

const endLeases = async (databaseUrl: string): Promise<void> => {
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} })
  try {
    await sql.unsafe(`
      update work set due_at = now(), rank = now(), lease_until = now() where lease_until > now();
      update backup_job set due_at = now() where lease_token is not null;
      update backup_copy set due_at = now() where lease is not null`)
  } finally {
    await sql.end({ timeout: 1 })
  }
}

/** Several programs may share a folder and a store; each has ports of its own. */
export const makePlane = async (
  base: string,
  databaseUrl: string,
  more: Record<string, string> = {},
  /** The command line that is started: another release's, for instance. */
  program = current
): Promise<Plane> => {
  const [port, metricsPort] = await Promise.all([freePort(), freePort()])
  let child: ChildProcess | undefined
  let log = ""
  const alive = () => child !== undefined && child.exitCode === null && child.signalCode === null
  const token = () =>
    (
      JSON.parse(fs.readFileSync(path.join(base, "config", "svc", "credentials.json"), "utf8")) as {
        session: string
      }
    ).session
  const kill = (signal: NodeJS.Signals) =>
    new Promise<void>((resolve) => {
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) return resolve()
      child.once("exit", () => resolve())
      child.kill(signal)
    })
  return {
    start: async () => {
      child = spawn(process.execPath, [program, "up", "--no-apply"], {
        cwd: base,
        env: {
          ...process.env,
          SVC_DATA_DIR: path.join(base, "data"),
          XDG_CONFIG_HOME: path.join(base, "config"),
          SVC_DATABASE_URL: databaseUrl,
          SVC_PORT: String(port),
          SVC_METRICS_PORT: String(metricsPort),
          SVC_ROLES: "api,engine",
          SVC_RATE_LIMIT: "1000000",
          SVC_MANAGED_HOST: ownLoopback(base),
          ...more
        },
        stdio: ["ignore", "pipe", "pipe"]
      })
      for (const stream of [child.stdout, child.stderr])
        stream?.on("data", (chunk: Buffer) => (log += chunk.toString()))
      const serving = async () => {
        const response = await fetch(`http://127.0.0.1:${port}/v1/health`, {
          signal: AbortSignal.timeout(5_000)
        })
        await response.text()
        return response.ok
      }
      // One that ends before it serves will not do so later.
      await until("serving", () => !alive() || serving())
      if (!alive()) throw new Error(`the control plane ended:\n${log.slice(-3_000)}`)
      await until("signed in", async () => token() !== "")
    },
    kill,
    crash: async () => {
      await kill("SIGKILL")
      await endLeases(databaseUrl)
    },
    signal: (signal) => void child?.kill(signal),
    call: async (method, target, body, timeoutMs = 60_000) => {
      const response = await fetch(`http://127.0.0.1:${port}${target}`, {
        method,
        headers: {
          authorization: `Bearer ${token()}`,
          "content-type": Buffer.isBuffer(body) ? "application/x-tar" : "application/json",
          // One that was kept open may be closed by the server at the moment at which the next request is sent.
          connection: "close"
        },
        signal: AbortSignal.timeout(timeoutMs),
        ...(body === undefined
          ? {}
          : { body: Buffer.isBuffer(body) ? new Uint8Array(body) : JSON.stringify(body) })
      })
      const text = await response.text()
      return {
        status: response.status,
        body: text.startsWith("{") || text.startsWith("[") ? JSON.parse(text) : text
      }
    },
    url: `http://127.0.0.1:${port}`,
    alive,
    log: () => log
  }
}

const folderOfPlanes = Effect.acquireRelease(
  Effect.sync(() => {
    const base = fs.mkdtempSync(path.join(os.tmpdir(), "svc-test-"))
    // The servers' user walks through it.
    fs.chmodSync(base, 0o755)
    return { base, planes: [] as Array<Plane> }
  }),
  ({ base, planes }) =>
    Effect.promise(async () => {
      await Promise.all(planes.map((plane) => plane.kill("SIGKILL")))
      await sweep(base)
    })
)

/** With a store of their own, which a test may kill. */
export const planesWorld = Effect.gen(function* () {
  const store = yield* Effect.acquireRelease(
    Effect.promise(() => startPostgres({ durable: "against kills" })),
    (server) => Effect.sync(() => server.stop())
  )
  return { ...(yield* folderOfPlanes), store }
})

/** Their store is a migrated database in the server of the run: for tests that leave it alone. */
export const planesOnSharedServer = Effect.gen(function* () {
  const url = Redacted.value(yield* migratedDatabase)
  return { ...(yield* folderOfPlanes), store: { url } }
})
