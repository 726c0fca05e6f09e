/** A process that answers the API alone, as several measurements want it. */
import { spawn } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import type postgres from "postgres"
import { freePort } from "#test/setup/postgres.ts"
import { ended, serving } from "./load.ts"

/** A folder that the programs of a measurement may share. Whoever makes it removes it. */
export const benchFolder = (): string => {
  const base = fs.mkdtempSync(path.join(os.tmpdir(), "svc-bench-"))
  fs.chmodSync(base, 0o755)
  return base
}

/** On the store at `url`, which it migrates, with rate limits that no measurement reaches. With `ipc` it can be told things. */
export const apiProcess = async (
  base: string,
  url: string,
  options: {
    readonly env?: Record<string, string>
    readonly args?: ReadonlyArray<string>
    readonly ipc?: boolean
    /** Default: the API alone. */
    readonly roles?: string
  } = {}
) => {
  const [port, metricsPort] = await Promise.all([freePort(), freePort()])
  const program = fileURLToPath(new URL("./auth-server.ts", import.meta.url))
  const child = spawn(process.execPath, [...(options.args ?? []), program], {
    cwd: base,
    stdio: ["ignore", "ignore", "inherit", ...(options.ipc === true ? (["ipc"] as const) : [])],
    env: {
      ...process.env,
      ...options.env,
      SVC_DATA_DIR: path.join(base, "data"),
      SVC_DATABASE_URL: url,
      SVC_PORT: String(port),
      SVC_METRICS_PORT: String(metricsPort),
      SVC_RATE_LIMIT: "100000000",
      SVC_ROLES: options.roles ?? "api"
    }
  })
  try {
    if (options.roles?.includes("api") === false) await serving(metricsPort, "/metrics", child)
    else await serving(port, "/v1/health", child)
  } catch (error) {
    await ended(child)
    throw error
  }
  return { port, child }
}

/**
 * Twenty projects that are ready, and statistics of them. Of tables that are empty there are none, as in a store that is
 * left to itself: told that they are, Postgres would read them whole long after they have grown.
 */
export const seedProjects = async (sql: postgres.Sql, org: string): Promise<void> => {
  await sql`
    insert into resource (org_id, uid, kind, name, spec, status, phase, observed_generation, settled, managed_by)
    select ${org}, uuidv7(), 'Project', 'project-' || i, '{"name": "P", "runtimeClass": "always-on"}', '{}',
      'ready', 1, true, 'api'
    from generate_series(1, 20) i`
  await sql`analyze organization, resource`
}
