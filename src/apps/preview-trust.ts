/**
 * Whether what runs in an environment may have secrets and data. In the preview of a fork's pull request that is the commit
 * that somebody approved, and nothing else. An environment is a preview's when it stands below one, whatever its name is.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { DeploymentSpec } from "#schemas/deployment.ts"
import { isTrusted, Preview } from "#schemas/preview.ts"
import { Db, repeatable } from "#src/store/Db.ts"

export interface EnvironmentKey {
  readonly orgId: string
  readonly environmentUid: string
}

export interface EnvironmentPlace {
  readonly orgId: string
  readonly projectId: string
  /** Its name. */
  readonly environment: string
  /** Of which something is to run there. */
  readonly deployment?: string | undefined
}

export interface Standing {
  readonly environmentUid: string
  readonly isPreview: boolean
  readonly isTrusted: boolean
}

interface Row {
  readonly environmentUid: string
  readonly preview: unknown
}

const decodePreview = Schema.decodeUnknownOption(Preview.spec)
const decodeSource = Schema.decodeUnknownOption(DeploymentSpec.fields.source)

/** What cannot be read is not trusted. */
const isTrustedPreview = (preview: unknown): boolean => Option.exists(decodePreview(preview), isTrusted)

/** Of a fork, a commit counts by itself; what a member sent from elsewhere goes by the commit that the preview is at. */
const isTrustedDeployment = (preview: unknown, source: unknown): boolean =>
  Option.exists(
    decodePreview(preview),
    ({ fork, approvedCommit }) =>
      !fork ||
      Option.exists(decodeSource(source), (one) => one.kind !== "git" || one.commit === approvedCommit)
  )

export const makePreviewTrust = Effect.gen(function* () {
  const { engine: sql } = yield* Db
  return {
    /** Undefined: there is no such environment. Indexes: resource_identity, the primary key. */
    standingOf: ({ orgId, projectId, environment, deployment }: EnvironmentPlace) =>
      Effect.map(
        repeatable(sql<Row & { readonly source: unknown }>`
          select e.uid as "environmentUid", p.spec as preview, d.spec -> 'source' as source
          from resource e
          left join resource p on p.org_id = e.org_id and p.uid = e.parent_uid and p.kind = ${Preview.name}
          left join resource d on d.org_id = e.org_id and d.uid = ${deployment ?? null}::uuid
            and d.kind = 'Deployment'
          where e.org_id = ${orgId}::uuid and e.kind = 'Environment' and e.project_id = ${projectId}::uuid
            and e.environment is null and e.name = ${environment} and e.deletion_requested_at is null`),
        ([row]): Standing | undefined =>
          row && {
            environmentUid: row.environmentUid,
            isPreview: row.preview !== null,
            isTrusted:
              row.preview === null ||
              (isTrustedPreview(row.preview) &&
                (deployment === undefined || isTrustedDeployment(row.preview, row.source)))
          }
      ),
    /** Whose packages builds for an environment of the project use and leave: of a fork, approved or not, its own. */
    packagesOf: (orgId: string, projectId: string, environmentUid: string | null) =>
      Effect.map(
        repeatable(sql<{ readonly uid: string; readonly preview: unknown }>`
          select p.uid, p.spec as preview from resource e
          join resource p on p.org_id = e.org_id and p.uid = e.parent_uid and p.kind = ${Preview.name}
          where e.org_id = ${orgId}::uuid and e.uid = ${environmentUid}::uuid`),
        ([row]) =>
          row === undefined || Option.exists(decodePreview(row.preview), ({ fork }) => !fork)
            ? projectId
            : row.uid
      ),
    /** Those of the environments that get nothing. Index: the primary key. */
    untrustedOf: (environments: ReadonlyArray<EnvironmentKey>) =>
      Effect.map(
        repeatable(sql<Row>`
          select e.uid as "environmentUid", p.spec as preview
          from unnest(${environments.map(({ orgId }) => orgId)}::uuid[],
            ${environments.map(({ environmentUid }) => environmentUid)}::uuid[]) as w(org_id, uid)
          join resource e on e.org_id = w.org_id and e.uid = w.uid and e.kind = 'Environment'
          join resource p on p.org_id = e.org_id and p.uid = e.parent_uid and p.kind = ${Preview.name}`),
        (rows): ReadonlySet<string> =>
          new Set(
            rows.flatMap(({ environmentUid, preview }) => (isTrustedPreview(preview) ? [] : [environmentUid]))
          )
      )
  }
})
