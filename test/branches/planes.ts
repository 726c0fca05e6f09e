/** A control plane of its own with one database, for tests of branches from end to end. */
import * as fs from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { makePlane, type Plane, planesWorld } from "#test/faults/planes.ts"
import { until } from "#test/faults/wait.ts"
import { processesNaming } from "#test/setup/caches.ts"

export const project = "/v1/orgs/main/projects/shop"

export interface BranchPlane {
  readonly plane: Plane
  readonly dataDir: string
  readonly databaseId: string
  readonly databaseUrl: string
  readonly base: string
  readonly ca: string
  readonly folderOf: (uid: string) => string
}

/** The database is ready and empty. */
export const branchPlane = Effect.gen(function* () {
  const { base: folder, store, planes } = yield* planesWorld
  return yield* Effect.promise(async (): Promise<BranchPlane> => {
    const plane = await makePlane(folder, store.url)
    planes.push(plane)
    await plane.start()
    await plane.call("POST", "/v1/orgs/main/projects", { name: "Shop", slug: "shop" })
    await plane.call("POST", `${project}/environments`, { slug: "staging" })
    const made = await plane.call("POST", `${project}/database`, {})
    const databaseId = String((await plane.call("GET", `${project}/database`)).body.id)
    const dataDir = path.join(folder, "data")
    return {
      plane,
      dataDir,
      databaseId,
      databaseUrl: String(made.body.connectionString),
      base: `${project}/databases/${databaseId}/branches`,
      ca: String((await plane.call("GET", "/v1/ca.pem")).body),
      folderOf: (uid) => path.join(dataDir, "databases", uid)
    }
  })
})

export const open = ({ ca }: BranchPlane, url: string, max = 1) =>
  postgres(url.replace(/\?.*/, ""), {
    ssl: { ca, rejectUnauthorized: true },
    max,
    connect_timeout: 5,
    fetch_types: false,
    onnotice: () => {}
  })

export const query = async (world: BranchPlane, url: string, text: string): Promise<Array<unknown>> => {
  const sql = open(world, url)
  try {
    return [...(await sql.unsafe(text))].map((row) => Object.values(row)[0])
  } finally {
    await sql.end({ timeout: 1 })
  }
}

export const branchOf = (name: string, source: object = { kind: "current" }) => ({
  name,
  environment: "staging",
  region: "local",
  sku: "db-n1",
  source
})

/** Waits until a branch is ready; answers what it is then. */
export const ready = ({ plane, base }: BranchPlane, id: string, seconds = 120) =>
  until(
    "the branch is ready",
    async () => {
      const { body } = await plane.call("GET", `${base}/${id}`)
      if (body.connectionReady === true) return body
      throw new Error(JSON.stringify(body))
    },
    seconds
  )

/** The connection string, by a rotation. */
export const urlOf = async ({ plane, base }: BranchPlane, id: string): Promise<string> =>
  String((await plane.call("POST", `${base}/${id}/rotate`)).body.connectionString)

/** Files and processes that no branch should have left behind. */
export const debris = ({ dataDir, plane, base, databaseId }: BranchPlane) =>
  until("nothing is left behind", async () => {
    const { body } = await plane.call("GET", base)
    const known = new Set([databaseId, ...body.map(({ id }: { id: string }) => id)])
    const folders = fs.readdirSync(path.join(dataDir, "databases"))
    const left = [
      ...folders.filter((uid) => !known.has(uid)),
      ...folders.flatMap((uid) =>
        fs
          .readdirSync(path.join(dataDir, "databases", uid))
          .filter((name) => /^(hydrating|data\.)/.test(name))
      ),
      ...processesNaming("hydrating-").filter(({ pid }) =>
        fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(dataDir)
      )
    ]
    if (left.length > 0) throw new Error(JSON.stringify(left))
    return true
  })
