import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Authority } from "#src/access/Authority.ts"
import { AppConfig } from "#src/config.ts"
import { Forge } from "#src/git/Forge.ts"
import { GitSources } from "#src/git-sources/GitSources.ts"
import { ManifestRepository } from "#src/git-sources/ManifestRepository.ts"
import { Reviews } from "#src/git-sources/Reviews.ts"
import { Manifests } from "#src/manifest/Manifests.ts"
import { followLoop, type Looked } from "#src/previews/follow.ts"
import { channel, type PullRequestLook, PullRequestLooks } from "#src/previews/PullRequestLooks.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { rowsOf } from "#test/loops/rows.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"

/** What a look does is the suite's. */
const nobody = Layer.mock(Forge, {
  client: () => {
    throw new Error("no forge is asked")
  }
})

leasedLoopSuite(
  "of pull requests",
  Layer.mergeAll(
    PullRequestLooks.layer,
    Resources.layer,
    nobody,
    ...[Layer.mock(Reviews)({}), Layer.mock(GitSources)({}), Layer.mock(Authority)({})],
    ...[Layer.mock(ManifestRepository)({}), Layer.mock(Manifests)({})]
  ).pipe(
    // What was looked at is not due again as long as a test takes.
    Layer.provideMerge(AppConfig.layerWith({}, { SVC_GIT_POLL_SECONDS: "100000" })),
    Layer.provideMerge(KeyRing.layerEphemeral),
    Layer.provideMerge(testDb())
  ),
  Effect.gen(function* () {
    const db = yield* Db
    const sql = db.engine
    const table: Table<PullRequestLook, Looked> = {
      ...rowsOf(db, {
        table: "pull_request_look",
        // Nothing else puts the next look so far off.
        done: sql`due_at > now() + interval '1 hour'`,
        is: (id) => sql`project_uid = ${id}::uuid`
      }),
      port: yield* followLoop,
      add: (orgId, dueIn = 0) => {
        const id = uuid()
        return sql`
          with project as (
            insert into resource (org_id, uid, kind, name, spec, managed_by)
            values (${orgId}::uuid, ${id}::uuid, 'Project', ${id}, '{}', 'api') returning org_id, uid
          )
          insert into pull_request_look (org_id, project_uid, repo, due_at)
          select org_id, uid, 'acme/shop', now() + ${dueIn}::float8 * interval '1 millisecond' from project
          returning pg_notify(${channel}, '')`.pipe(Effect.as(id), Effect.orDie)
      },
      succeeded: () => ({ error: undefined, isPending: false })
    }
    return table
  })
)
