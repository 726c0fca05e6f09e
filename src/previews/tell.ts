/**
 * What people read at their pull request: one comment with its preview and the plans of git sources, and the statuses
 * `svc/preview` and `svc/plan` of its commit. It may be read by everybody who reads the repository: nothing is in it that a
 * visitor of the address could not know, and no values.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Deployment, type DeploymentState } from "#schemas/deployment.ts"
import { previewSlug } from "#schemas/names.ts"
import { isTrusted, Preview, type PreviewSpec, type PreviewStatus } from "#schemas/preview.ts"
import type { CommitStatus, ForgeClient, ForgeError } from "#src/git/ForgeClient.ts"
import type { ProjectLook } from "#src/git/project-looks.ts"
import type { PlanWords } from "#src/git-sources/plan-comment.ts"
import { Resources } from "#src/store/Resources.ts"
import type { ResourceRecord } from "#src/store/records.ts"

const decode = Schema.decodeUnknownOption(
  Schema.Struct({ spec: Preview.spec, status: Schema.NullOr(Preview.status) })
)
const decodeDeployment = Schema.decodeUnknownOption(Deployment.status)

const stateOf: Readonly<Record<DeploymentState, CommitStatus["state"]>> = {
  queued: "pending",
  fetching: "pending",
  building: "pending",
  starting: "pending",
  ready: "success",
  failed: "failure",
  cancelled: "error",
  superseded: "error"
}

/** Pull requests whose words are remembered by a process; of others it asks the forge what it said. */
const mostRemembered = 10_000

/** What is to be said at one pull request. */
export interface Words {
  readonly pullRequest: number
  readonly commit: string
  /** Undefined: it has none. */
  readonly preview?: ResourceRecord | undefined
  /** Of git sources: their plans, or what became of them. Undefined: none is kept from there. */
  readonly plan?: PlanWords | undefined
}

export interface Told {
  /** Something is still on its way that will be told of. */
  readonly isPending: boolean
  /** Whether it stands in the comment. */
  readonly isShown: boolean
}

export const makeTell = Effect.gen(function* () {
  const resources = yield* Resources
  /** What was said last, by the look's project and the pull request. */
  const said = new Map<string, string>()

  /** What is said of the preview. */
  const previewWords = Effect.fnUntraced(function* (record: ResourceRecord) {
    const preview = Option.getOrUndefined(decode({ spec: record.spec, status: record.status }))
    if (preview === undefined) return undefined
    const { spec, status } = preview
    const found =
      status?.deploymentId == null ? Option.none() : yield* resources.get(record.orgId, status.deploymentId)
    const deployment = Option.getOrUndefined(
      Option.flatMap(found, (one) => decodeDeployment(one.status))
    )?.state
    const state = deployment === undefined ? ("pending" as const) : stateOf[deployment]
    const mark: CommitStatus = {
      context: "svc/preview",
      state,
      description: deployment === undefined ? "The preview is being made" : `The deployment is ${deployment}`,
      targetUrl: status?.address ?? undefined
    }
    return {
      commit: spec.commit,
      mark,
      text: textOf(record.project ?? "", spec, status, deployment),
      isPending: state === "pending" || status?.address == null
    }
  })

  return Effect.fnUntraced(function* (
    client: ForgeClient,
    { projectId, repo }: Pick<ProjectLook, "projectId"> & { readonly repo: string },
    { pullRequest, commit, preview: record, plan }: Words,
    /** Another process may have told something else since. */
    anew = false
  ) {
    const preview = record === undefined ? undefined : yield* previewWords(record)
    const isPending = preview?.isPending === true
    const texts = [preview?.text, plan?.text].filter((text) => text !== undefined)
    if (texts.length === 0) return { isPending, isShown: false }
    const body = texts.join("\n\n")
    const marks: ReadonlyArray<readonly [string, CommitStatus]> = [
      ...(preview === undefined ? [] : [[preview.commit, preview.mark] as const]),
      ...(plan === undefined
        ? []
        : [[commit, { context: "svc/plan", state: plan.state, description: plan.description }] as const])
    ]
    const key = `${projectId} ${pullRequest}`
    const now = JSON.stringify([body, marks])
    if (!anew && said.get(key) === now) return { isPending, isShown: true }
    // The mark of the comment is that of the first release, which had previews alone.
    const comment = client.comment(repo, pullRequest, { marker: `svc-preview-${projectId}`, body })
    const [isShown = false, ...isMarked] = yield* Effect.forEach(
      [comment, ...marks.map(([of, mark]) => client.setStatus(repo, of, mark))],
      unlessRefused
    )
    if (!isShown || isMarked.includes(false)) return { isPending, isShown }
    if (said.size >= mostRemembered) said.clear()
    said.set(key, now)
    return { isPending, isShown }
  })
})

/**
 * Whether the forge took it. What it refuses of one pull request, such as a comment where the conversation is locked, keeps
 * nothing else from being told; a forge that takes nothing at the moment does.
 */
const unlessRefused = (asked: Effect.Effect<void, ForgeError>): Effect.Effect<boolean, ForgeError> =>
  asked.pipe(
    Effect.as(true),
    Effect.catch((error) =>
      error.code === "limited" || error.code === "unreachable"
        ? Effect.fail(error)
        : Effect.as(Effect.logDebug("the forge takes no word at a pull request", error.message), false)
    )
  )

const textOf = (
  project: string,
  spec: PreviewSpec,
  status: PreviewStatus | null,
  deployment: DeploymentState | undefined
): string =>
  [
    `**Preview:** ${status?.address ?? "is being made"}`,
    "",
    `Environment \`${previewSlug(spec.pullRequest)}\`, commit \`${spec.commit.slice(0, 12)}\`, deployment ${deployment ?? "not begun"}.`,
    ...(isTrusted(spec)
      ? []
      : [
          "",
          `It has no secrets and no data until an admin approves this commit: \`svc previews approve ${project} ${spec.pullRequest} --commit ${spec.commit}\``
        ])
  ].join("\n")
