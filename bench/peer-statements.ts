/** What both peers of the API do for the same two requests: the statements that the API runs, and an answer like its. */
import { createHash, randomUUIDv7 } from "node:crypto"
import postgres from "postgres"

const sql = postgres(process.env["SVC_DATABASE_URL"] ?? "", {
  max: 8,
  onnotice: () => {},
  connection: { role: "svc_api", random_page_cost: "1.1" }
})

const access = async (authorization: string | undefined) => {
  const digest = createHash("sha256")
    .update((authorization ?? "").slice("Bearer ".length))
    .digest()
  const [row] = await sql`select * from svc_access('key', ${digest}, 'main')`
  return row
}
const gate = (org: string) => sql`(select set_config('svc.org_id', ${org}, true)) is not null`

const list = async (org: string) => {
  const rows = await sql`
    select r.uid, r.kind, r.environment, r.name, r.parent_uid, r.spec, r.status, r.phase, r.conditions,
      r.deletion_requested_at, r.created_at, r.updated_at,
      case when r.phase <> 'ready' then (select w.last_error from work w
        where w.org_id = r.org_id and w.uid = r.uid and ${gate(org)}) end as last_error
    from resource r
    where r.org_id = ${org} and r.kind = 'Project' and r.project_id is null and r.deleted_at is null and ${gate(org)}
    order by r.name, r.environment`
  return rows.map(({ uid, name, spec, created_at, updated_at }) => ({
    id: uid,
    name: spec.name,
    slug: name,
    runtimeClass: spec.runtimeClass,
    region: spec.region ?? null,
    git: spec.git ?? null,
    previewData: spec.previewData ?? "forbidden",
    createdAt: created_at.toISOString(),
    updatedAt: updated_at.toISOString()
  }))
}

const create = async (org: string, principal: string, slug: string) => {
  const [place] = await sql`
    select p.uid, e.uid as environment from resource p
    left join resource e on e.org_id = ${org} and e.kind = 'Environment' and e.project_id = p.uid and e.environment is null
      and e.name = 'production' and e.deleted_at is null
    where p.org_id = ${org} and p.kind = 'Project' and p.deleted_at is null and p.name = 'project-1' and ${gate(org)} limit 1`
  const uid = randomUUIDv7()
  const [made] = await sql`
    with parent as materialized (
      select uid from resource where org_id = ${org} and uid = ${place?.["uid"]} and deletion_requested_at is null and ${gate(org)} for share
    ), created as (
      insert into resource (org_id, uid, kind, project_id, name, parent_uid, spec, managed_by)
      select ${org}, ${uid}, 'Environment', uid, ${slug}, uid, '{}', 'api' from parent where ${gate(org)}
      returning uid, created_at, generation
    ), queued as (
      insert into work (org_id, uid, kind) select ${org}, uid, 'Environment' from created where ${gate(org)}
    ), history as (
      insert into resource_event (org_id, uid, type, reason, message, actor, generation)
      select ${org}, uid, 'Normal', 'Created', 'Created by environments.create', ${principal}, generation from created where ${gate(org)}
    ), audited as (
      insert into audit_log (org_id, principal, credential, operation, resource, request_id, outcome)
      select ${org}, ${principal}, 'key', 'environments.create', uid::text, 'raw', 201 from created where ${gate(org)}
    )
    select uid, created_at, pg_notify('svc_work', ''), pg_notify('svc_change', ${org}) from created`
  return { id: made?.["uid"], slug, implicit: false, createdAt: made?.["created_at"].toISOString() }
}

export interface Answer {
  readonly status: number
  readonly body: unknown
}

/** `body` is read already; absent for a GET. */
export const answerTo = async (
  authorization: string | undefined,
  body: { readonly slug: string } | undefined
): Promise<Answer> => {
  const caller = await access(authorization)
  if (caller === undefined) return { status: 401, body: { error: "unauthenticated" } }
  if (body === undefined) return { status: 200, body: await list(caller["org_id"]) }
  return { status: 201, body: await create(caller["org_id"], caller["credential_id"], body.slug) }
}
