/**
 * What the edge is to serve: a site for each environment, and the host names that lead to it. Only this service writes
 * these tables. Each write is one statement, may be repeated, and changes nothing where all is as it should be; nodes of
 * the edge hear of what did change.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { AppConfig } from "#src/config.ts"
import { Db, repeatable } from "#src/store/Db.ts"
import { dueNow } from "#src/store/work-rows.ts"
import { StoreUnavailable } from "#src/store-unavailable.ts"
import { settings } from "./settings.ts"
import { AccessMode, Target } from "./target.ts"

/** Another organization, or another domain, has this host name. */
export class HostTaken extends Schema.TaggedError<HostTaken>()("HostTaken", { message: Schema.String }) {}

/** The environment has no site yet, or none any more (its own reconcile makes it), or the domain is going. */
export class SiteMissing extends Schema.TaggedError<SiteMissing>()("SiteMissing", {
  message: Schema.String
}) {}

export interface SiteKey {
  readonly orgId: string
  readonly environmentUid: string
}

export interface Site {
  readonly label: string
  /** Its managed host name, if the edge has it. */
  readonly hostname: string | undefined
  /** Undefined: nothing answers. */
  readonly target: Target | undefined
  /** An app of this platform answers: its reconciler says where requests go. */
  readonly isApp: boolean
  readonly asleep: boolean
  readonly access: AccessMode
}

export interface SiteLook {
  /** Undefined: nothing of it is there. */
  readonly site: Site | undefined
  /** Whether any edge serves at all. */
  readonly served: boolean
  /** Why none does, as an edge told last. */
  readonly fault: string | undefined
}

export interface HostWish extends SiteKey {
  /** Lower case, without a dot at its end. */
  readonly hostname: string
  /** The custom domain that it belongs to. */
  readonly domainUid: string
  /** Requests are sent on to this host name. */
  readonly redirectTo?: string | undefined
  /** 0: no `Strict-Transport-Security`. */
  readonly hstsSeconds?: number | undefined
}

export interface HostKey {
  readonly orgId: string
  readonly domainUid: string
  readonly hostname: string
}

interface Row {
  readonly label: string | null
  readonly hostname: string | null
  readonly target: unknown
  readonly isApp: boolean
  readonly asleep: boolean
  readonly access: string
  readonly served: boolean
  readonly fault: string | null
}

const decodeTarget = Schema.decodeUnknownEffect(Schema.NullOr(Target))
const decodeAccess = Schema.decodeUnknownEffect(AccessMode)
const unreadable = (cause: Schema.SchemaError) =>
  new StoreUnavailable({ message: "A site of the edge cannot be read", cause })

export class EdgeSites extends Context.Service<
  EdgeSites,
  {
    /** The host name below the apps domain that belongs to a label. */
    readonly hostnameOf: (label: string) => string
    /** The URL of a host name for browsers, with the port where it is not 443. */
    readonly urlOf: (hostname: string) => string
    readonly look: (key: SiteKey) => Effect.Effect<SiteLook, StoreUnavailable>
    /** The managed host names of environments, by their uids; one that has no site yet is left out. */
    readonly managedHosts: (
      orgId: string,
      environmentUids: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyMap<string, string>, StoreUnavailable>
    /** Every host name that leads to one of the environments: managed ones, and those of domains that were verified. */
    readonly hostsOf: (
      orgId: string,
      environmentUids: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
    /**
     * Makes the site with its managed host name, and sets its target. The label of a site that is there stays; a new one
     * gets `label` if it is given, else one from the names of environment and project. A target takes the place of an
     * app of ours; none leaves the app there. Answers the label; undefined: there is no such environment.
     */
    readonly ensure: (
      key: SiteKey,
      wish: { readonly label?: string | undefined; readonly target: Target | undefined }
    ) => Effect.Effect<string | undefined, StoreUnavailable>
    readonly setAccess: (key: SiteKey, access: AccessMode) => Effect.Effect<void, StoreUnavailable>
    /** Notes that somebody waits for a site that is asleep. */
    readonly requestWake: (key: SiteKey) => Effect.Effect<void, StoreUnavailable>
    /** A custom host name; fails if somebody else has it. */
    readonly putHost: (wish: HostWish) => Effect.Effect<void, HostTaken | SiteMissing | StoreUnavailable>
    /** A custom host name of this domain as it is served. */
    readonly findHost: (host: HostKey) => Effect.Effect<Option.Option<HostWish>, StoreUnavailable>
    /** Removes a custom host name of this domain; one that is not there is success. */
    readonly removeHost: (host: HostKey) => Effect.Effect<void, StoreUnavailable>
    /** Removes the site with all host names that lead to it. */
    readonly remove: (key: SiteKey) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/edge/EdgeSites") {
  static readonly layer = Layer.effect(
    EdgeSites,
    Effect.gen(function* () {
      yield* AppConfig
      const { engine: sql } = yield* Db
      const { appsDomain, httpsPort, publicHttpsPort } = yield* settings
      const port = publicHttpsPort ?? httpsPort
      const hostnameOf = (label: string) => `${label}.${appsDomain}`

      return EdgeSites.of({
        hostnameOf,
        urlOf: (hostname) => `https://${hostname}${port === 443 ? "" : `:${port}`}`,
        managedHosts: Effect.fn("EdgeSites.managedHosts")(function* (orgId, environmentUids) {
          const rows = yield* repeatable(sql<{ readonly uid: string; readonly label: string }>`
            select environment_uid as uid, label from edge_site
            where org_id = ${orgId}::uuid and environment_uid = any(${environmentUids}::uuid[])`)
          return new Map(rows.map(({ uid, label }) => [uid, hostnameOf(label)]))
        }),
        // Index: edge_host_site.
        hostsOf: Effect.fn("EdgeSites.hostsOf")(function* (orgId, environmentUids) {
          const rows = yield* repeatable(sql<{ readonly hostname: string }>`
            select hostname from edge_host
            where org_id = ${orgId}::uuid and environment_uid = any(${environmentUids}::uuid[])`)
          return rows.map(({ hostname }) => hostname)
        }),
        look: Effect.fn("EdgeSites.look")(function* ({ orgId, environmentUid }) {
          // By primary key and by edge_host_site; nodes are few.
          const [row] = yield* repeatable(sql<Row>`
            select s.label, s.target, s.app_uid is not null as "isApp", coalesce(s.asleep, false) as asleep, coalesce(s.access, 'public') as access,
              (select h.hostname from edge_host h where h.org_id = s.org_id and h.environment_uid = s.environment_uid
                and h.domain_uid is null limit 1) as hostname,
              exists (select from edge_node where alive_until > now()) as served,
              (select fault from edge_node where fault is not null order by alive_until desc limit 1) as fault
            from (select) one left join edge_site s
              on s.org_id = ${orgId}::uuid and s.environment_uid = ${environmentUid}::uuid`)
          const base = { served: row?.served ?? false, fault: row?.fault ?? undefined }
          if (row === undefined || row.label === null) return { ...base, site: undefined }
          const target = yield* Effect.mapError(decodeTarget(row.target), unreadable)
          const access = yield* Effect.mapError(decodeAccess(row.access), unreadable)
          const site: Site = {
            label: row.label,
            hostname: row.hostname ?? undefined,
            target: target ?? undefined,
            isApp: row.isApp,
            asleep: row.asleep,
            access
          }
          return { ...base, site }
        }),
        ensure: Effect.fn("EdgeSites.ensure")(function* ({ orgId, environmentUid }, { label, target }) {
          const json = target === undefined ? null : sql.json(target)
          // Labels have 63 characters at most, and none begins as an internationalized one (RFC 5890, section 2.3.1). The
          // last digits of an id are random; more of them where somebody has the label already.
          const [row] = yield* repeatable(sql<{ readonly label: string }>`
            -- Materialized, so that the kind is a check: as a condition it made the planner read all of that kind.
            with named as materialized (
              select r.org_id, r.uid, r.kind, replace(r.uid::text, '-', '') as digits,
                regexp_replace(r.name || '--' || coalesce(p.name, 'app'), '^xn--', 'x--') as words, s.label as kept
              from resource r
              left join resource p on p.org_id = r.org_id and p.uid = r.project_id
              left join edge_site s on s.org_id = r.org_id and s.environment_uid = r.uid
              where r.org_id = ${orgId}::uuid and r.uid = ${environmentUid}::uuid and r.deleted_at is null
            ), place as (
              select org_id, uid, coalesce(kept, (
                select one.label from unnest(array[
                  ${label ?? null}::text,
                  rtrim(left(words, 56), '-') || '-' || right(digits, 6),
                  rtrim(left(words, 42), '-') || '-' || right(digits, 20)
                ]) with ordinality as one(label, ord)
                where one.label is not null and not exists (select from edge_site t where t.label = one.label)
                order by ord limit 1)) as label
              from named where kind = 'Environment'
            ), site as (
              insert into edge_site (org_id, environment_uid, label, target)
              select org_id, uid, label, ${json}::jsonb from place
              on conflict (org_id, environment_uid)
                do update set target = excluded.target, app_uid = null, asleep = false, wake_requested_at = null
              where (edge_site.target is distinct from excluded.target or edge_site.app_uid is not null)
                and (excluded.target is not null or edge_site.app_uid is null)
            ), renamed as (
              delete from edge_host h using place
              where h.org_id = place.org_id and h.environment_uid = place.uid and h.domain_uid is null
                and h.hostname <> place.label || ${`.${appsDomain}`}
            ), host as (
              insert into edge_host (hostname, org_id, environment_uid)
              select label || ${`.${appsDomain}`}, org_id, uid from place
              on conflict (hostname) do nothing
            )
            select label from place`)
          return row?.label
        }),
        setAccess: ({ orgId, environmentUid }, access) =>
          Effect.asVoid(
            repeatable(sql`
              update edge_site set access = ${access}
              where org_id = ${orgId}::uuid and environment_uid = ${environmentUid}::uuid and access <> ${access}`)
          ),
        requestWake: ({ orgId, environmentUid }) =>
          Effect.asVoid(
            repeatable(sql`
              with asked as (
                update edge_site set wake_requested_at = now()
                where org_id = ${orgId}::uuid and environment_uid = ${environmentUid}::uuid and asleep
                  and wake_requested_at is null
                returning org_id, app_uid
              ), woken as (
                update work w set ${dueNow(sql)} from asked a
                where w.org_id = a.org_id and w.uid = a.app_uid
                returning w.uid
              )
              select pg_notify('svc_work', '') from woken`)
          ),
        putHost: Effect.fn("EdgeSites.putHost")(function* (wish) {
          const { orgId, environmentUid, domainUid, hostname } = wish
          const redirectTo = wish.redirectTo ?? null
          const hsts = wish.hstsSeconds ?? 0
          const [row] = yield* repeatable(sql<{
            readonly put: boolean
            readonly same: boolean
            readonly site: boolean
          }>`
            with site as (
              select org_id, environment_uid from edge_site
              where org_id = ${orgId}::uuid and environment_uid = ${environmentUid}::uuid
                -- A run that comes late leaves nothing behind of a domain that is going.
                and exists (select from resource r where r.org_id = ${orgId}::uuid and r.uid = ${domainUid}::uuid
                  and r.deletion_requested_at is null)
                -- Nor of one whose name is another's by now.
                and exists (select from domain_claim c where c.hostname = ${hostname} and c.org_id = ${orgId}::uuid
                  and c.domain_uid = ${domainUid}::uuid)
            ), put as (
              insert into edge_host (hostname, org_id, environment_uid, domain_uid, redirect_to, hsts_seconds)
              select ${hostname}, org_id, environment_uid, ${domainUid}::uuid, ${redirectTo}::text, ${hsts}::int from site
              on conflict (hostname) do update set environment_uid = excluded.environment_uid,
                redirect_to = excluded.redirect_to, hsts_seconds = excluded.hsts_seconds
              where edge_host.org_id = excluded.org_id and edge_host.domain_uid = excluded.domain_uid
                and (edge_host.environment_uid, edge_host.redirect_to, edge_host.hsts_seconds)
                  is distinct from (excluded.environment_uid, excluded.redirect_to, excluded.hsts_seconds)
              returning 1
            )
            select exists (select from put) as put, exists (select from site) as site,
              exists (select from edge_host where hostname = ${hostname} and org_id = ${orgId}::uuid
                and domain_uid = ${domainUid}::uuid) as same`)
          if (row?.site !== true)
            return yield* new SiteMissing({
              message:
                "The edge does not know the environment yet, or the domain is going or has lost its name"
            })
          if (!row.put && !row.same)
            return yield* new HostTaken({ message: `The host name ${hostname} is in use already` })
        }),
        findHost: Effect.fn("EdgeSites.findHost")(function* ({ orgId, domainUid, hostname }) {
          const [row] = yield* repeatable(sql<{
            readonly environmentUid: string
            readonly redirectTo: string | null
            readonly hstsSeconds: number
          }>`
            select environment_uid as "environmentUid", redirect_to as "redirectTo", hsts_seconds as "hstsSeconds"
            from edge_host
            where hostname = ${hostname} and org_id = ${orgId}::uuid and domain_uid = ${domainUid}::uuid`)
          return Option.map(Option.fromUndefinedOr(row), ({ redirectTo, ...host }) => ({
            orgId,
            domainUid,
            hostname,
            ...host,
            redirectTo: redirectTo ?? undefined
          }))
        }),
        removeHost: ({ orgId, domainUid, hostname }) =>
          Effect.asVoid(
            repeatable(sql`
              delete from edge_host
              where hostname = ${hostname} and org_id = ${orgId}::uuid and domain_uid = ${domainUid}::uuid`)
          ),
        remove: ({ orgId, environmentUid }) =>
          Effect.asVoid(
            repeatable(sql`
              delete from edge_site where org_id = ${orgId}::uuid and environment_uid = ${environmentUid}::uuid`)
          )
      })
    })
  )
}
