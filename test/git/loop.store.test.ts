import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { AppConfig } from "#src/config.ts"
import { CommitSources } from "#src/deployments/CommitSources.ts"
import { type BranchLook, GitBranches } from "#src/git/GitBranches.ts"
import { type Looked, looksLoop } from "#src/git/look.ts"
import { Db } from "#src/store/Db.ts"
import { KeyRing } from "#src/store/KeyRing.ts"
import { Resources } from "#src/store/Resources.ts"
import { rowsOf } from "#test/loops/rows.ts"
import { leasedLoopSuite } from "#test/loops/suite.ts"
import type { Table } from "#test/loops/table.ts"
import { testDb } from "#test/setup/database.ts"
import { uuid } from "#test/setup/fixtures.ts"

/** What a look does is the suite's. */
const nobody = Layer.succeed(CommitSources, { resolve: () => Effect.never, bring: () => Effect.never })

leasedLoopSuite(
  "of branches",
  Layer.mergeAll(GitBranches.layer, Resources.layer, nobody).pipe(
    // What was looked at is not due again as long as a test takes.
    Layer.provideMerge(AppConfig.layerWith({}, { SVC_GIT_POLL_SECONDS: "100000" })),
    Layer.provideMerge(KeyRing.layerEphemeral),
    Layer.provideMerge(testDb())
  ),
  Effect.gen(function* () {
    const db = yield* Db
    const sql = db.engine
    const table: Table<BranchLook, Looked> = {
      ...rowsOf(db, {
        table: "git_branch",
        done: sql`commit_id is not null`,
        is: (id) => sql`project_uid = ${id}::uuid`
      }),
      port: yield* looksLoop,
      add: (orgId, dueIn = 0) => {
        const id = uuid()
        return sql`
          insert into git_branch (org_id, project_uid, repo, due_at)
          values (${orgId}::uuid, ${id}::uuid, 'acme/shop', now() + ${dueIn}::float8 * interval '1 millisecond')`.pipe(
          Effect.as(id),
          Effect.orDie
        )
      },
      succeeded: () => ({ commit: "a".repeat(40), error: undefined })
    }
    return table
  })
)
