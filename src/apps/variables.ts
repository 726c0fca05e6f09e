/** The variables by which what runs in an environment finds the platform and its own servers. */
import type * as Redacted from "effect/Redacted"
import { postgresUrl, redisUrl } from "#src/infra/connection-strings.ts"
import { appUser as cacheUser } from "#src/infra/redis/settings.ts"

/** A server that can be called from where the variables are used. */
export interface Server {
  readonly kind: "Database" | "DatabaseBranch" | "Cache"
  readonly name: string
  readonly host: string
  readonly port: number
  /** Of databases and their branches. */
  readonly user: string | null
  readonly dbName: string | null
  readonly password: Redacted.Redacted
}

/** Where a container finds the certificate of the authority that managed servers' certificates are from. */
export const caFile = "/etc/svc/ca.pem"

export const platformVariables = (environment: {
  readonly name: string
  readonly apiUrl: string
  readonly token: string
  readonly signingSecret: string
}): Readonly<Record<string, string>> => ({
  SVC_ENVIRONMENT: environment.name,
  SVC_API_URL: environment.apiUrl,
  APP_SERVICE_TOKEN: environment.token,
  SVC_SIGNING_SECRET: environment.signingSecret
})

/**
 * Of the servers of an environment, the oldest first. `DATABASE_URL` is the database's or, in an environment that has none,
 * that of its oldest branch; `REDIS_URL` is the oldest cache's, so that one which comes later changes neither. Each cache
 * has a variable with its name besides.
 */
export const serverVariables = (servers: ReadonlyArray<Server>): Readonly<Record<string, string>> => {
  if (servers.length === 0) return {}
  const caches = servers.filter(({ kind }) => kind === "Cache")
  const database =
    servers.find(({ kind }) => kind === "Database") ?? servers.find(({ kind }) => kind === "DatabaseBranch")
  const cacheUrl = (cache: Server) => redisUrl({ ...cache, user: cacheUser }, cache.password)
  return {
    ...(database === undefined
      ? {}
      : {
          DATABASE_URL: postgresUrl(
            { ...database, user: database.user ?? "", dbName: database.dbName ?? "" },
            database.password
          )
        }),
    ...Object.fromEntries(caches.map((cache) => [`REDIS_URL_${variableName(cache.name)}`, cacheUrl(cache)])),
    ...(caches[0] === undefined ? {} : { REDIS_URL: cacheUrl(caches[0]) }),
    SVC_CA_FILE: caFile,
    // Read by libpq and by drivers that do as it does, and by Node for every connection.
    PGSSLROOTCERT: caFile,
    NODE_EXTRA_CA_CERTS: caFile
  }
}

const variableName = (name: string): string => name.toUpperCase().replaceAll(/[^A-Z0-9]/g, "_")
