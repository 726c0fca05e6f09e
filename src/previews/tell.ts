/**
 * What people read of a preview at their pull request: one comment, and the status `svc/preview` of its commit. It may be
 * read by everybody: nothing is in it that a visitor of the address could not know.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { Deployment, type DeploymentState } from "#schemas/deployment.ts"
import { previewSlug } from "#schemas/names.ts"
import { isTrusted, Preview, type PreviewSpec, type PreviewStatus } from "#schemas/preview.ts"
import type { CommitStatus, ForgeClient, ForgeError } from "#src/git/ForgeClient.ts"
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

/** Previews whose words are remembered by a process; of others it asks the forge what it said. */
const mostRemembered = 10_000

export const makeTell = Effect.gen(function* () {
  const resources = yield* Resources
  /** What was said last, by the preview's uid. */
  const said = new Map<string, string>()

  /** Answers whether something is still on its way that will be told of. */
  return Effect.fnUntraced(function* (client: ForgeClient, repo: string, record: ResourceRecord) {
    const preview = Option.getOrUndefined(decode({ spec: record.spec, status: record.status }))
    if (preview === undefined) return false
    const { spec, status } = preview
    const found =
      status?.deploymentId == null ? Option.none() : yield* resources.get(record.orgId, status.deploymentId)
    const deployment = Option.getOrUndefined(
      Option.flatMap(found, (one) => decodeDeployment(one.status))
    )?.state
    const state = deployment === undefined ? "pending" : stateOf[deployment]
    const body = textOf(record.project ?? "", spec, status, deployment)
    const isPending = state === "pending" || status?.address == null
    if (said.get(record.uid) === body) return isPending
    const { pullRequest, commit } = spec
    const comment = client.comment(repo, pullRequest, { marker: `svc-preview-${record.projectId}`, body })
    const mark = client.setStatus(repo, commit, {
      context: "svc/preview",
      state,
      description: deployment === undefined ? "The preview is being made" : `The deployment is ${deployment}`,
      targetUrl: status?.address ?? undefined
    })
    const isTold = yield* Effect.forEach([comment, mark], unlessRefused)
    if (isTold.includes(false)) return isPending
    if (said.size >= mostRemembered) said.clear()
    said.set(record.uid, body)
    return isPending
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
        : Effect.as(Effect.logDebug("the forge takes no word of a preview", error.message), false)
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
