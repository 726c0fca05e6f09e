/** The shared suite on the store, with a repository in memory: what is known of a source, and what it applied. */
import * as Effect from "effect/Effect"
import type { GitSourceSpec } from "#schemas/git-source.ts"
import type { Resource } from "#src/engine/Reconciler.ts"
import { project, type Source, type SourceWorld, sourceLayer, sourceWorld } from "#test/git-sources/world.ts"
import { reconcilerSuite } from "./suite.ts"

type SourceResource = Resource<GitSourceSpec>

/** The slug of a source's organization is in the address of its repository. */
const slugOf = ({ spec }: SourceResource): Pick<Source, "slug"> => ({
  slug: /acme\/(.+)\.git$/.exec(spec.url)?.[1] ?? ""
})

reconcilerSuite<SourceWorld, GitSourceSpec, unknown>({
  name: "a git source",
  kind: "GitSource",
  world: sourceWorld,
  layer: sourceLayer,
  makeResource: ({ makeSource }) => makeSource(),
  snapshot: Effect.fnUntraced(function* ({ db, projects }, source) {
    const [row] = yield* db.engine<{ readonly synced: boolean; readonly faulty: boolean }>`
      select state->'applied'->'commit' = state->'commit' as synced, state->'fault' <> 'null'::jsonb as faulty
      from git_source where uid = ${source.uid}::uuid`
    return { ...row, projects: (yield* projects(source)).toSorted() }
  }),
  remains: ({ db }, { uid }) =>
    Effect.map(db.engine`select from git_source where uid = ${uid}::uuid`, (rows) =>
      rows.map(() => "what is known of it")
    ),
  changes: [
    {
      name: "another ref",
      apply: ({ push, manifestOf }, source) =>
        Effect.sync(() => {
          push(source, manifestOf(slugOf(source), project("shop"), project("blog")), "next")
          return { ...source, generation: source.generation + 1, spec: { ...source.spec, ref: "next" } }
        })
    }
  ],
  drifts: [
    {
      name: "somebody asks for a look",
      field: "/status/lookedAt",
      disturb: ({ db }, { uid }) =>
        Effect.asVoid(db.engine`update git_source set asked = asked + 1 where uid = ${uid}::uuid`)
    },
    {
      name: "what is known of it is gone",
      field: "absent",
      disturb: ({ db }, { uid }) => Effect.asVoid(db.engine`delete from git_source where uid = ${uid}::uuid`)
    }
  ]
})
