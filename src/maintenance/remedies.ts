/** The operations that mend what checks find, each with its parameters and as a command. */
import type { Json } from "#schemas/kind.ts"
import { shellWord } from "#src/cli/shell-word.ts"
import { addressOf, type ResourceRecord } from "#src/store/records.ts"
import type { Remedy } from "./finding.ts"
import { operationOf } from "./operations.ts"

const remedy = (
  operationId: string,
  words: ReadonlyArray<string>,
  path: Readonly<Record<string, string>>,
  body?: Json
): Remedy => {
  const entry = operationOf(operationId)
  if (entry === undefined) throw new Error(`There is no operation ${operationId}`)
  return {
    operationId,
    risk: entry.operation.risk,
    parameters: { path, ...(body === undefined ? {} : { body }) },
    command: ["svc", ...words].map(shellWord).join(" ")
  }
}

const placeOf = ({ project, environment }: ResourceRecord) => [
  project ?? "",
  ...(environment === null ? [] : ["--environment", environment])
]
const projectOf = ({ projectId }: ResourceRecord) => ({ projectId: projectId ?? "" })

/** Looks at a resource now, and takes the steps that it lacks. */
export const retry = (record: ResourceRecord): Remedy =>
  remedy("resources.retry", ["retry", addressOf(record)], { uid: record.uid })

export const resume = (record: ResourceRecord): Remedy =>
  remedy("resources.resume", ["resume", addressOf(record)], { uid: record.uid })

export const protect = (record: ResourceRecord): Remedy =>
  remedy("resources.protect", ["protect", addressOf(record)], { uid: record.uid }, { protected: true })

/** Backs a database up; `drill`: and proves the backup by restoring it. */
export const backUp = (record: ResourceRecord, drill: boolean): Remedy =>
  remedy(
    "backups.create",
    ["backups", "create", ...placeOf(record), ...(drill ? ["--drill"] : [])],
    { ...projectOf(record), databaseId: record.uid },
    { drill }
  )

export const testDestination = (record: ResourceRecord): Remedy =>
  remedy("backupDestinations.test", ["destinations", "test", record.name], { destinationId: record.uid })

export const checkDomain = (record: ResourceRecord): Remedy =>
  remedy("domains.check", ["domains", "check", ...placeOf(record), record.name], {
    ...projectOf(record),
    domainId: record.uid
  })

export const removeDomain = (record: ResourceRecord): Remedy =>
  remedy("domains.remove", ["domains", "delete", ...placeOf(record), record.name], {
    ...projectOf(record),
    domainId: record.uid
  })

export const setHsts = (record: ResourceRecord, seconds: number): Remedy =>
  remedy(
    "domains.update",
    ["domains", "update", ...placeOf(record), record.name, "--hsts", String(seconds)],
    { ...projectOf(record), domainId: record.uid },
    { hstsSeconds: seconds }
  )

export const growCache = (record: ResourceRecord, sku: string): Remedy =>
  remedy(
    "caches.update",
    ["caches", "update", ...placeOf(record), record.name, "--sku", sku],
    { ...projectOf(record), cacheId: record.uid },
    { sku }
  )

export const deleteCache = (record: ResourceRecord): Remedy =>
  remedy("caches.delete", ["caches", "delete", ...placeOf(record), record.name], {
    ...projectOf(record),
    cacheId: record.uid
  })

export const deleteDatabase = (record: ResourceRecord): Remedy => ({
  ...remedy("database.delete", ["database", "delete", ...placeOf(record)], projectOf(record)),
  parameters: { path: projectOf(record), query: { environment: record.environment ?? "" } }
})

export const deleteBranch = (record: ResourceRecord, databaseId: string): Remedy =>
  remedy("databaseBranches.delete", ["database", "branch", "delete", ...placeOf(record), record.name], {
    ...projectOf(record),
    databaseId,
    branchId: record.uid
  })
