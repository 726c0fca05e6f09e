/**
 * Who has which host name. A claim is made by the store together with the resource (migration 0031), so that of two
 * organizations that add a name at once one gets it. It is proved when DNS leads the name to the environment.
 */
import { createHash } from "node:crypto"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Db, inOrg, repeatable, type Sql } from "#src/store/Db.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"

export interface Claim {
  readonly uid: string
  /** Seconds since the name was claimed. */
  readonly age: number
  /** Seconds since DNS was last noted to lead here; undefined: it never was. */
  readonly provedAge: number | undefined
  /** It was not proved in time: the name is free for others. */
  readonly lapsed: boolean
  /** Another organization was the last to prove the name: a TXT record with the challenge is asked for in any case. */
  readonly contested: boolean
  /** What shows, as a TXT record, that the name is this organization's. */
  readonly challenge: string
}

interface Ref {
  readonly orgId: string
  readonly uid: string
}

/** Where the TXT record of the challenge is. */
export const challengeName = (hostname: string): string => `_svc-challenge.${hostname}`

/**
 * What the record holds. It is no secret: who can write it into the zone says that the name is this organization's. It
 * stays the same, so a record that is there serves a domain that is added again.
 */
export const challengeOf = (orgId: string, hostname: string): string =>
  createHash("sha256").update(`${orgId} ${hostname}`).digest("hex").slice(0, 32)

export class Claims extends Context.Service<
  Claims,
  {
    /** None: the domain has none, because another one took the name. */
    readonly find: (ref: Ref) => Effect.Effect<Option.Option<Claim>, StoreUnavailable>
    /** Of several domains, by uid, for requests. */
    readonly ofDomains: (
      orgId: string,
      uids: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyMap<string, Claim>, StoreUnavailable>
    /**
     * Before anything is changed for a domain: earlier reconciles change nothing from now on. False: a later one was here,
     * or the name is not the domain's any more.
     */
    readonly hold: (ref: Ref, fence: bigint) => Effect.Effect<boolean, StoreUnavailable>
    /** Notes that DNS leads the name here. From now on the claim does not lapse. False: it is the domain's no more. */
    readonly prove: (ref: Ref) => Effect.Effect<boolean, StoreUnavailable>
    /** Gives the name back; a claim of another domain stays. */
    readonly release: (ref: Ref) => Effect.Effect<void, StoreUnavailable>
    /** Whether any domain of this organization has the name. */
    readonly isHeld: (orgId: string, hostname: string) => Effect.Effect<boolean, StoreUnavailable>
    /** Whether another organization has a claim of the name that it did not prove, and that is not free anyhow. */
    readonly isContestable: (orgId: string, hostname: string) => Effect.Effect<boolean, StoreUnavailable>
    /** Takes such a claim away, for an organization that showed that the name is its own. */
    readonly displace: (orgId: string, hostname: string) => Effect.Effect<void, StoreUnavailable>
  }
>()("svc/domains/Claims") {
  static readonly layer = Layer.effect(
    Claims,
    Effect.gen(function* () {
      const { api, engine } = yield* Db
      return Claims.of({
        find: Effect.fn("Claims.find")(function* ({ orgId, uid }) {
          const [row] = yield* repeatable(engine<Row>`
            select ${columns(engine)} from domain_claim
            where org_id = ${orgId}::uuid and domain_uid = ${uid}::uuid`)
          return Option.map(Option.fromUndefinedOr(row), toClaim)
        }),
        ofDomains: Effect.fn("Claims.ofDomains")(function* (orgId, uids) {
          if (uids.length === 0) return new Map()
          const rows = yield* repeatable(api<Row>`
            select ${columns(api)} from domain_claim
            where org_id = ${orgId}::uuid and domain_uid = any(${uids}::uuid[]) and ${inOrg(api, orgId)}`)
          return new Map(rows.map((row) => [row.uid, toClaim(row)]))
        }),
        hold: Effect.fn("Claims.hold")(function* ({ orgId, uid }, fence) {
          const rows = yield* repeatable(engine`
            update domain_claim set fence = ${fence}
            where org_id = ${orgId}::uuid and domain_uid = ${uid}::uuid and fence <= ${fence} returning 1`)
          return rows.length > 0
        }),
        prove: Effect.fn("Claims.prove")(function* ({ orgId, uid }) {
          const rows = yield* repeatable(engine`
            with proved as (
              update domain_claim set proved_at = now()
              where org_id = ${orgId}::uuid and domain_uid = ${uid}::uuid
              returning hostname, org_id
            )
            insert into domain_proof as p (hostname, org_id) select hostname, org_id from proved
            on conflict (hostname) do update set org_id = excluded.org_id, proved_at = now() returning 1`)
          return rows.length > 0
        }),
        release: ({ orgId, uid }) =>
          Effect.asVoid(
            repeatable(engine`
              delete from domain_claim where org_id = ${orgId}::uuid and domain_uid = ${uid}::uuid`)
          ),
        isHeld: (orgId, hostname) =>
          Effect.map(
            repeatable(engine`
              select from domain_claim where hostname = ${hostname} and org_id = ${orgId}::uuid`),
            (rows) => rows.length > 0
          ),
        isContestable: (orgId, hostname) =>
          Effect.map(
            repeatable(engine`
              select from domain_claim c join resource r on r.org_id = c.org_id and r.uid = c.domain_uid
              where c.hostname = ${hostname} and c.org_id <> ${orgId}::uuid and c.proved_at is null
                and c.claimed_at >= now() - interval '7 days' and r.deletion_requested_at is null`),
            (rows) => rows.length > 0
          ),
        displace: (orgId, hostname) =>
          Effect.asVoid(
            repeatable(engine`
              delete from domain_claim
              where hostname = ${hostname} and org_id <> ${orgId}::uuid and proved_at is null`)
          )
      })
    })
  )
}

interface Row extends Omit<Claim, "provedAge" | "challenge"> {
  readonly provedAge: number | null
  readonly orgId: string
  readonly hostname: string
}

const toClaim = ({ provedAge, orgId, hostname, ...row }: Row): Claim => ({
  ...row,
  provedAge: provedAge ?? undefined,
  challenge: challengeOf(orgId, hostname)
})

const columns = (sql: Sql) => sql`
  domain_uid as uid, org_id as "orgId", hostname, extract(epoch from now() - claimed_at)::float8 as age,
  extract(epoch from now() - proved_at)::float8 as "provedAge",
  proved_at is null and claimed_at < now() - interval '7 days' as lapsed,
  exists (select from domain_proof p
    where p.hostname = domain_claim.hostname and p.org_id <> domain_claim.org_id) as contested`
