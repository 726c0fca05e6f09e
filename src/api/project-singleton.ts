/** Operations on the one resource of a kind that a project may have: they name no id, and setting it makes it. */
import { randomUUIDv7 } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type { Json, Kind } from "#schemas/kind.ts"
import type { Change } from "#src/store/change.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import { RequestScope } from "./definition/scope.ts"
import { fromStore, type Problem } from "./problem.ts"
import { targetProject } from "./target.ts"
import { precondition } from "./writing.ts"

/** Of several who set it at once, the last one wins; whoever names what must be there is told. */
const again = Schedule.exponential("5 millis").pipe(Schedule.jittered)

/** What a write has to find there; it fails if the request says that something else must be. */
type Expecting = (
  record: ResourceRecord | undefined
) => Effect.Effect<
  { readonly expectedRevision?: string; readonly expectedGeneration?: number },
  Problem,
  RequestScope
>

export const projectSingleton = Effect.fnUntraced(function* (kind: Pick<Kind, "name">, name: string) {
  const resources = yield* Resources

  const find = Effect.gen(function* () {
    const { orgId } = yield* RequestScope
    const { projectId } = yield* targetProject
    const found = yield* resources.find(orgId, kind.name, projectId, null, name)
    // What is being deleted gives way to what takes its place.
    return Option.getOrUndefined(
      Option.filter(found, ({ deletionRequestedAt }) => deletionRequestedAt === null)
    )
  })

  return {
    /** Undefined: there is none. */
    current: Effect.mapError(find, fromStore),
    /** Makes it or changes it, and answers what it is then. */
    set: Effect.fnUntraced(function* (spec: Json, expecting: Expecting = precondition) {
      const { orgId, caller } = yield* RequestScope
      const { projectId } = yield* targetProject
      const write = Effect.gen(function* () {
        const record = yield* find
        const expected = yield* expecting(record)
        const change: Change =
          record === undefined
            ? {
                action: "create",
                uid: randomUUIDv7(),
                kind: kind.name,
                projectId,
                environment: null,
                name,
                parentUid: projectId,
                spec,
                managedBy: "api"
              }
            : { action: "update", uid: record.uid, ...expected, spec, managedBy: "api" }
        const [written] = yield* resources.write(orgId, [change], caller.actor)
        return written ?? (yield* Effect.die(new Error("a write answered nothing")))
      })
      return yield* write.pipe(
        Effect.retry({
          times: 10,
          schedule: again,
          while: (error) => error._tag === "RevisionConflict" || error._tag === "NameTaken"
        }),
        Effect.mapError((error) => (error._tag === "Problem" ? error : fromStore(error)))
      )
    })
  }
})
