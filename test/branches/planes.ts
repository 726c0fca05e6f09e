/** Control planes of their own with one database, for tests of branches from end to end. */
import * as fs from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import postgres from "postgres"
import { makePlane, type Plane, planesOnSharedServer } from "#test/faults/planes.ts"
import { processesNaming } from "#test/setup/processes.ts"
import { objectStore } from "#test/setup/s3.ts"
import { until } from "#test/setup/wait.ts"

export const project = "/v1/orgs/main/projects/shop"

export interface BranchPlane {
  readonly plane: Plane
  readonly dataDir: string
  readonly databaseId: string
  readonly databaseUrl: string
  /** Of the store of the control plane. */
  readonly storeUrl: string
  readonly base: string
  readonly ca: string
  readonly folderOf: (uid: string) => string
}

const worldOf = async (
  plane: Plane,
  folder: string,
  storeUrl: string,
  databaseUrl: string
): Promise<BranchPlane> => {
  const databaseId = String((await plane.call("GET", `${project}/database`)).body.id)
  const dataDir = path.join(folder, "data")
  return {
    plane,
    dataDir,
    databaseId,
    databaseUrl,
    storeUrl,
    base: `${project}/databases/${databaseId}/branches`,
    ca: String((await plane.call("GET", "/v1/ca.pem")).body),
    folderOf: (uid) => path.join(dataDir, "databases", uid)
  }
}

/** The connection string, once the database is ready. */
const rotated = (plane: Plane): Promise<string> =>
  until("the database is ready", async () => {
    const { status, body } = await plane.call("POST", `${project}/database/rotate`)
    if (status === 200) return String(body.connectionString)
    throw new Error(JSON.stringify(body))
  })

/** The database is ready and empty. */
export const branchPlane = Effect.gen(function* () {
  const { base: folder, store, planes } = yield* planesOnSharedServer
  return yield* Effect.promise(async (): Promise<BranchPlane> => {
    const plane = await makePlane(folder, store.url)
    planes.push(plane)
    await plane.start()
    await plane.call("POST", "/v1/orgs/main/projects", { name: "Shop", slug: "shop" })
    await plane.call("POST", `${project}/environments`, { slug: "staging" })
    const made = await plane.call("POST", `${project}/database`, {})
    // A slow machine answers before it is ready, and shows no password then.
    const shown: unknown = made.body.connectionString
    return worldOf(plane, folder, store.url, typeof shown === "string" ? shown : await rotated(plane))
  })
})

/** The database is ready and empty, and its backups go to an object store. */
export const planeWithObjectStore = Effect.gen(function* () {
  const far = yield* objectStore
  const { base: folder, store, planes } = yield* planesOnSharedServer
  const world = yield* Effect.promise(async (): Promise<BranchPlane> => {
    const authority = path.join(folder, "far.pem")
    fs.writeFileSync(authority, far.caPem)
    const plane = await makePlane(folder, store.url, { NODE_EXTRA_CA_CERTS: authority })
    planes.push(plane)
    await plane.start()
    const { endpoint, bucket, credentials } = far
    const offsite = { name: "offsite", endpoint, bucket, credentials }
    const destination = await plane.call("POST", "/v1/orgs/main/backup-destinations", offsite)
    assert.strictEqual(destination.status, 201, JSON.stringify(destination.body))
    const backup = { pitrDays: 7, destinationIds: [destination.body.id] }
    const databases = [{ name: "main", sku: "db-n1", region: "local", backup }]
    const shop = { name: "Shop", slug: "shop", runtimeClass: "always-on", environments: { staging: {} } }
    const applied = await plane.call("POST", "/v1/orgs/main/manifest/apply", {
      manifest: { version: 1, organization: "main", projects: [{ ...shop, databases }] }
    })
    assert.strictEqual(applied.status, 202, JSON.stringify(applied.body))
    return worldOf(plane, folder, store.url, await rotated(plane))
  })
  return { far, world }
})

export const open = ({ ca }: BranchPlane, url: string, max = 1) =>
  postgres(url.replace(/\?.*/, ""), {
    ssl: { ca, rejectUnauthorized: true },
    max,
    connect_timeout: 30,
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
export const ready = ({ plane, base }: BranchPlane, id: string, seconds = 240) =>
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
export const urlOf = ({ plane, base }: BranchPlane, id: string): Promise<string> =>
  until("the branch has a new password", async () => {
    const { status, body } = await plane.call("POST", `${base}/${id}/rotate`)
    if (status === 200) return String(body.connectionString)
    throw new Error(JSON.stringify(body))
  })

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
      ...processesNaming("hydrating-").filter(({ line }) => line.includes(dataDir))
    ]
    if (left.length > 0) throw new Error(JSON.stringify(left))
    return true
  })
