/**
 * What an environment gives to what runs in it on this machine: variables that name the platform and the environment's own
 * servers, and a way to those servers. A server of this machine is reached at the services' address (`src/infra/containers/
 * services.ts`), one of another region where its own region says.
 */
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { AppConfig } from "#src/config.ts"
import { CertificateAuthority } from "#src/infra/CertificateAuthority.ts"
import type { ReachableService } from "#src/infra/containers/ContainerEngine.ts"
import { listeningAddress } from "#src/infra/containers/listening-address.ts"
import { Host, type HostError } from "#src/infra/host/Host.ts"
import { replicaNumbers, standbyKey } from "#src/infra/postgres/standby.ts"
import { portOwner } from "#src/infra/redis/RedisServers.ts"
import { makeSigningSecrets } from "#src/outbound/signing-secrets.ts"
import { AppServiceTokens } from "#src/projects/AppServiceTokens.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { Secrets } from "#src/store/Secrets.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import {
  type EnvironmentKey,
  type EnvironmentPlace,
  makePreviewTrust,
  type Standing
} from "./preview-trust.ts"
import { caFile, platformVariables, type Server, serverVariables } from "./variables.ts"

/** What runs in a preview that is not trusted gets its name and nothing else. */
export interface Provision extends Standing {
  /** For `ContainerEngine.run`. */
  readonly services: ReadonlyArray<ReachableService>
  readonly variables: Redacted.Redacted<Readonly<Record<string, string>>>
  /** For a container's plan: files that the variables name. */
  readonly files: Readonly<Record<string, string>>
}

interface ServerRow extends Pick<Server, "kind" | "name" | "user" | "dbName"> {
  readonly environmentUid: string
  readonly uid: string
  readonly host: string | null
  readonly port: number | null
}

/** Who holds the ports of a server on its machine: each standby has one of its own. */
const holdersOf = ({ kind, uid }: Pick<ServerRow, "kind" | "uid">): ReadonlyArray<string> =>
  kind === "Cache" ? [portOwner(uid)] : [uid, ...replicaNumbers.map((number) => standbyKey(uid, number))]

type Reservations = ReadonlyMap<string, ReadonlyArray<number>>

const isLoopback = (host: string): boolean => /^(127\.|localhost$|::1$|\[::1\]$)/.test(host)

export class EnvironmentServices extends Context.Service<
  EnvironmentServices,
  {
    /** None: there is no such environment. The variables are those of now. */
    readonly provide: (
      place: EnvironmentPlace
    ) => Effect.Effect<Option.Option<Provision>, StoreUnavailable | HostError>
    /** What containers of environments may reach of this machine now, by the environments' uids. */
    readonly reachable: (
      environments: ReadonlyArray<EnvironmentKey>
    ) => Effect.Effect<ReadonlyMap<string, ReadonlyArray<ReachableService>>, StoreUnavailable | HostError>
  }
>()("svc/apps/EnvironmentServices") {
  static readonly layer = Layer.effect(
    EnvironmentServices,
    Effect.gen(function* () {
      const config = yield* AppConfig
      const { engine: sql } = yield* Db
      const secrets = yield* Secrets
      const tokens = yield* AppServiceTokens
      const signing = yield* makeSigningSecrets
      const host = yield* Host
      const { caPem } = yield* CertificateAuthority
      const trust = yield* makePreviewTrust

      /** The API where it listens on this machine; undefined: it is elsewhere. */
      const api = (() => {
        const url = new URL(config.publicUrl)
        if (config.roles.has("api")) return { host: config.host, port: config.port }
        if (config.localApi !== undefined) return config.localApi
        const usual = url.protocol === "https:" ? 443 : 80
        return isLoopback(url.hostname) ? { host: url.hostname, port: Number(url.port || usual) } : undefined
      })()
      const apiUrl =
        api === undefined || config.services === undefined
          ? config.publicUrl
          : `http://${config.services.name}:${api.port}`

      /** Oldest first. Indexes: the primary key, resource_by_place. */
      const serversOf = (environments: ReadonlyArray<EnvironmentKey>) =>
        repeatable(sql<ServerRow>`
          select e.uid as "environmentUid", s.uid, s.kind, s.name, s.status ->> 'host' as host,
            nullif((s.status ->> 'port')::int, 0) as port, s.status ->> 'user' as user,
            s.status ->> 'dbName' as "dbName"
          from unnest(${environments.map(({ orgId }) => orgId)}::uuid[],
            ${environments.map(({ environmentUid }) => environmentUid)}::uuid[]) as w(org_id, uid)
          join resource e on e.org_id = w.org_id and e.uid = w.uid and e.kind = 'Environment'
            and e.deletion_requested_at is null and e.deleted_at is null
          join resource s on s.org_id = e.org_id and s.kind = any(array['Database', 'DatabaseBranch', 'Cache'])
            and s.project_id = e.project_id and s.environment = e.name
            and s.deletion_requested_at is null and s.deleted_at is null
            and (s.kind <> 'DatabaseBranch' or (s.status ->> 'state' = 'ready' and s.spec -> 'promotedTo' is null))
          order by s.created_at, s.uid`)

      /** Ports of this machine that servers have, by who holds them. */
      const reservations = Effect.map(host.reservedPorts, (reserved): Reservations => {
        const ports = new Map<string, Array<number>>()
        for (const [port, holder] of reserved) ports.set(holder, [...(ports.get(holder) ?? []), port])
        return ports
      })
      const portsOf = (row: ServerRow, reserved: Reservations) =>
        holdersOf(row).flatMap((holder) => reserved.get(holder) ?? [])

      /** What an environment with these servers reaches of this machine, as it is now. */
      const makeReachable = Effect.fnUntraced(function* (reserved: Reservations) {
        if (config.services === undefined) return (): ReadonlyArray<ReachableService> => []
        const [managed, own] = yield* Effect.all(
          [
            listeningAddress(config.managedHost),
            api === undefined ? Effect.succeedNone : listeningAddress(api.host)
          ],
          { concurrency: "unbounded" }
        )
        const ofApi = api === undefined || Option.isNone(own) ? [] : [{ port: api.port, address: own.value }]
        return (rows: ReadonlyArray<ServerRow>): ReadonlyArray<ReachableService> => [
          ...(Option.isNone(managed)
            ? []
            : rows.flatMap((row) =>
                portsOf(row, reserved).map((port) => ({ port, address: managed.value }))
              )),
          ...ofApi
        ]
      })

      /** Where what runs on this machine calls a server; undefined: it cannot. */
      const hostFor = (row: ServerRow, reserved: Reservations): string | undefined => {
        if (row.host === null) return undefined
        if (config.services !== undefined && portsOf(row, reserved).length > 0) return config.services.name
        return isLoopback(row.host) ? undefined : row.host
      }

      /** Written again only when it is another one. */
      const ensureCaFile = Effect.gen(function* () {
        const folder = path.join(config.dataDir, "apps")
        const file = path.join(folder, "ca.pem")
        if (Option.getOrUndefined(yield* host.readFile(file)) === caPem) return file
        yield* host.directory(folder)
        yield* host.writeFile(file, caPem, 0o644)
        return file
      })

      return EnvironmentServices.of({
        provide: Effect.fn("EnvironmentServices.provide")(function* (place) {
          const { orgId, projectId, environment } = place
          const standing = yield* trust.standingOf(place)
          if (standing === undefined) return Option.none()
          if (!standing.isTrusted) {
            const variables = Redacted.make({ SVC_ENVIRONMENT: environment })
            return Option.some({ ...standing, services: [], variables, files: {} })
          }
          const found = yield* tokens.current(orgId, projectId, environment)
          if (Option.isNone(found)) return Option.none()
          const { environmentUid, token } = found.value
          // It was made anew in between.
          if (environmentUid !== standing.environmentUid) return Option.none()
          const rows = yield* serversOf([{ orgId, environmentUid }])
          const reserved = yield* reservations
          const reachable = yield* makeReachable(reserved)
          const servers = yield* Effect.forEach(
            rows,
            Effect.fnUntraced(function* (row) {
              const { uid, port } = row
              const called = hostFor(row, reserved)
              if (called === undefined || port === null) return []
              const password = yield* secrets.read({ orgId, uid, field: "password" })
              return Option.isNone(password) ? [] : [{ ...row, host: called, port, password: password.value }]
            }),
            { concurrency: 4 }
          )
          const ofServers = serverVariables(servers.flat())
          return Option.some({
            ...standing,
            services: reachable(rows),
            variables: Redacted.make({
              ...platformVariables({
                name: environment,
                apiUrl,
                token: Redacted.value(token),
                signingSecret: Redacted.value(yield* signing.current(orgId, environmentUid))
              }),
              ...ofServers
            }),
            files: Object.keys(ofServers).length === 0 ? {} : { [caFile]: yield* ensureCaFile }
          })
        }),
        reachable: Effect.fn("EnvironmentServices.reachable")(function* (environments) {
          // Many containers are of one environment.
          const distinct = new Map(environments.map((one) => [one.environmentUid, one]))
          const [rows, untrusted] = yield* Effect.all(
            [serversOf([...distinct.values()]), trust.untrustedOf([...distinct.values()])],
            { concurrency: 2 }
          )
          const reachable = yield* makeReachable(yield* reservations)
          const servers = Map.groupBy(rows, ({ environmentUid }) => environmentUid)
          return new Map(
            [...distinct.keys()].map((uid) => [
              uid,
              untrusted.has(uid) ? [] : reachable(servers.get(uid) ?? [])
            ])
          )
        })
      })
    })
  )
}
