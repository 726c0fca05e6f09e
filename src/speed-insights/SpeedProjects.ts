/** What a project's owner says of its measurements, and what follows from its environments and domains. */
import { randomBytes } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { AppConfig } from "#src/config.ts"
import { EdgeSites } from "#src/edge/EdgeSites.ts"
import { auditOf } from "#src/store/audit-cte.ts"
import { Db, inOrg, repeatable } from "#src/store/Db.ts"
import type { Actor } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface SpeedSettings {
  readonly enabled: boolean
  /** Part of the batches that is kept. */
  readonly sampleRate: number
  readonly allowedOrigins: ReadonlyArray<string>
}

export interface Configured extends SpeedSettings {
  readonly projectRef: string
}

/** A project as the intake knows it. */
export interface Known {
  readonly orgId: string
  readonly projectId: string
  readonly enabled: boolean
  readonly sampleRate: number
  /** Origins whose pages may send. */
  readonly origins: ReadonlySet<string>
  /** Uids by slug. */
  readonly environments: ReadonlyMap<string, string>
}

interface Row {
  readonly orgId: string
  readonly projectId: string
  readonly enabled: boolean
  readonly sampleRate: number
  readonly allowedOrigins: ReadonlyArray<string>
  readonly environments: ReadonlyArray<{
    readonly uid: string
    readonly slug: string
    readonly origin: string | null
  }>
}

export class SpeedProjects extends Context.Service<
  SpeedProjects,
  {
    /** Where browsers send measurements of the project. */
    readonly endpointOf: (projectRef: string) => string
    /** The first look gives the project its public reference, which it keeps. */
    readonly get: (orgId: string, projectId: string) => Effect.Effect<Configured, StoreUnavailable>
    /** What is left out stays as it is. */
    readonly set: (
      orgId: string,
      projectId: string,
      settings: Partial<SpeedSettings>,
      actor: Actor
    ) => Effect.Effect<Configured, StoreUnavailable>
    /** By its public reference. None: there is no such project, or it is being deleted. */
    readonly find: (projectRef: string) => Effect.Effect<Option.Option<Known>, StoreUnavailable>
  }
>()("svc/speed-insights/SpeedProjects") {
  static readonly layer = Layer.effect(
    SpeedProjects,
    Effect.gen(function* () {
      const { api, engine } = yield* Db
      const { publicUrl } = yield* AppConfig
      const sites = yield* EdgeSites

      const columns = api`project_ref as "projectRef", enabled, sample_rate as "sampleRate",
        allowed_origins as "allowedOrigins"`

      const get = Effect.fn("SpeedProjects.get")(function* (orgId: string, projectId: string) {
        const ref = randomBytes(8).toString("hex")
        for (;;) {
          const [row] = yield* repeatable(api<Configured>`
            with made as (
              insert into speed_project (org_id, project_uid, project_ref)
              select r.org_id, r.uid, left(r.name, 40) || '-' || ${ref}::text from resource r
              where r.org_id = ${orgId}::uuid and r.uid = ${projectId}::uuid and ${inOrg(api, orgId)}
                and not exists (select from speed_project p where p.org_id = r.org_id and p.project_uid = r.uid)
              on conflict do nothing
              returning ${columns}
            )
            select ${columns} from speed_project
            where org_id = ${orgId}::uuid and project_uid = ${projectId}::uuid and ${inOrg(api, orgId)}
            union all select * from made`)
          // None: somebody else made it at the same moment.
          if (row !== undefined) return row
        }
      })

      return SpeedProjects.of({
        endpointOf: (projectRef) => `${publicUrl}/v1/speed-insights/collect/${projectRef}`,
        get,
        set: Effect.fn("SpeedProjects.set")(function* (orgId, projectId, settings, actor) {
          const before = yield* get(orgId, projectId)
          const { enabled, sampleRate, allowedOrigins } = settings
          const origins = allowedOrigins === undefined ? null : api.json(allowedOrigins)
          const [row] = yield* repeatable(api<Configured>`
            with changed as (
              update speed_project set enabled = coalesce(${enabled ?? null}::boolean, enabled),
                sample_rate = coalesce(${sampleRate ?? null}::float8, sample_rate),
                allowed_origins = coalesce(
                  (select array_agg(o) from jsonb_array_elements_text(nullif(${origins}::jsonb, '[]')) o),
                  case when ${origins}::jsonb is null then allowed_origins else '{}' end)
              where org_id = ${orgId}::uuid and project_uid = ${projectId}::uuid and ${inOrg(api, orgId)}
              returning project_uid as id, ${columns}
            ), audited as (${auditOf(api, orgId, actor, "changed")})
            select "projectRef", enabled, "sampleRate", "allowedOrigins" from changed`)
          return row ?? before
        }),
        // Index: speed_project_project_ref_key, resource_by_place.
        find: Effect.fn("SpeedProjects.find")(function* (projectRef) {
          const [row] = yield* repeatable(engine<Row>`
            select p.org_id as "orgId", p.project_uid as "projectId", p.enabled, p.sample_rate as "sampleRate",
              p.allowed_origins as "allowedOrigins",
              coalesce((select jsonb_agg(jsonb_build_object('uid', e.uid, 'slug', e.name, 'origin', e.spec->'origin'))
                from resource e where e.org_id = p.org_id and e.kind = 'Environment' and e.project_id = p.project_uid
                  and e.deleted_at is null and e.deletion_requested_at is null), '[]') as environments
            from speed_project p join resource r on r.org_id = p.org_id and r.uid = p.project_uid
            where p.project_ref = ${projectRef} and r.deletion_requested_at is null`)
          if (row === undefined) return Option.none()
          const { environments, allowedOrigins, ...known } = row
          const hosts = row.enabled
            ? yield* sites.hostsOf(
                row.orgId,
                environments.map(({ uid }) => uid)
              )
            : []
          return Option.some({
            ...known,
            origins: new Set([
              ...allowedOrigins,
              ...hosts.map((hostname) => sites.urlOf(hostname)),
              ...environments.flatMap(({ origin }) => (origin === null ? [] : [origin]))
            ]),
            environments: new Map(environments.map(({ slug, uid }) => [slug, uid]))
          })
        })
      })
    })
  )
}
