/**
 * The loop that looks at production branches: soon after a forge told of a push, and now and then in case that was lost. What
 * the repository says is the newest commit becomes a deployment, once; in which order pushes were told of does not matter.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import { App, appName } from "#schemas/app.ts"
import type { CommitSource } from "#schemas/deployment.ts"
import { Environment } from "#schemas/environment.ts"
import { billingInactive, makeBillingActive } from "#src/access/billing.ts"
import { AppConfig } from "#src/config.ts"
import { CommitSources } from "#src/deployments/CommitSources.ts"
import { ensureApp, makeDeployment } from "#src/deployments/make-deployment.ts"
import { type LeasedLoop, leased } from "#src/loops/leased.ts"
import { periodic } from "#src/loops/periodic.ts"
import { Db } from "#src/store/Db.ts"
import { Resources } from "#src/store/Resources.ts"
import type { Actor } from "#src/store/records.ts"
import { type BranchLook, GitBranches } from "./GitBranches.ts"
import { leaseSeconds } from "./project-looks.ts"
import { settings } from "./settings.ts"

const atOnce = 8
/** Between looks at which projects have a repository that a connection opens, at most. */
const syncSeconds = 15
const production = "production"

const actor: Actor = {
  principal: "system",
  credential: "none",
  operation: "deployments.create",
  requestId: "git.push",
  address: null,
  outcome: 202
}

/** What a look came to. */
export interface Looked {
  /** Seen, and nothing was made of it. */
  readonly commit?: string
  /** Undefined: nothing is left to do. */
  readonly error: string | undefined
}

export const makeLook = Effect.gen(function* () {
  const branches = yield* GitBranches
  const commits = yield* CommitSources
  const resources = yield* Resources
  const { region } = yield* AppConfig
  const billingActive = yield* makeBillingActive

  const deploy = Effect.fnUntraced(function* (look: BranchLook, uid: string, source: CommitSource) {
    const { orgId, projectId } = look
    const environment = yield* resources.find(orgId, Environment.name, projectId, null, production)
    if (Option.isNone(environment)) return
    const place = { orgId, projectId, environment: production, environmentUid: environment.value.uid }
    const app = yield* ensureApp(resources, place, region, actor)
    const message = `${source.ref} at ${source.commit.slice(0, 12)}`
    const spec = { region: app.region, source, message, cancelRequested: false }
    yield* makeDeployment(resources, place, { uid, spec }, actor).pipe(
      // A look that ended before it was noted had made it.
      Effect.catchTag("NameTaken", () => Effect.void)
    )
  })

  /** What answers already is not replaced by what was there before the repository was connected. */
  const isFirst = ({ orgId, projectId }: BranchLook) =>
    Effect.map(resources.find(orgId, App.name, projectId, production, appName), Option.isNone)

  const look = Effect.fnUntraced(function* (branch: BranchLook) {
    const { orgId, repo, commit, deployment } = branch
    const source = yield* commits.resolve(orgId, {
      repo,
      ref: branch.ref ?? undefined,
      connection: branch.connection ?? undefined
    })
    if (source.commit === commit && deployment === null) return {}
    if (commit === null && deployment === null && !(yield* isFirst(branch))) return { commit: source.commit }
    // Not seen either: it is deployed once they pay.
    if (!(yield* billingActive(orgId))) return yield* Effect.fail({ message: billingInactive })
    const uid = yield* branches.seen(branch, source.commit)
    if (uid !== undefined) yield* deploy(branch, uid, source)
    return {}
  })

  return (branch: BranchLook): Effect.Effect<Looked> =>
    look(branch).pipe(
      Effect.match({
        onSuccess: (seen) => ({ ...seen, error: undefined }),
        onFailure: ({ message }) => ({ error: message })
      })
    )
})

/** Looks as jobs. */
export const looksLoop = Effect.gen(function* () {
  const branches = yield* GitBranches
  const { notifications } = yield* Db
  const { pollSeconds } = yield* settings
  const run = yield* makeLook
  const loop: LeasedLoop<BranchLook, Looked> = {
    name: "git",
    does: "look at branches",
    idOf: ({ projectId }) => projectId,
    orgOf: ({ orgId }) => orgId,
    atOnce,
    // Longer than a look takes: it needs no renewal.
    leaseMs: leaseSeconds * 1_000,
    claim: branches.claim,
    run,
    settle: Effect.fnUntraced(function* (branch, { commit, error }) {
      // Up to an hour between tries of what fails.
      const often = error === undefined ? 1 : Math.min(12, 2 ** Math.min(branch.failures, 4))
      const nextInSeconds = pollSeconds * often * (0.8 + 0.4 * (yield* Random.next))
      yield* branches.settle(branch, { commit, error, nextInSeconds })
    }),
    release: branches.giveBack,
    nextIn: branches.nextIn,
    wake: notifications("svc_git")
  }
  return loop
})

export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const branches = yield* GitBranches
    yield* leased(yield* looksLoop)
    const { pollSeconds } = yield* settings
    yield* periodic(
      {
        does: "see which repositories are connected",
        every: `${Math.min(syncSeconds, pollSeconds)} seconds`
      },
      branches.sync
    )
  })
)
