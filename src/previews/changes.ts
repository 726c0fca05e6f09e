/** What previews are to become of the pull requests that are open now. */
import { randomUUIDv7 } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { lineOf } from "#schemas/display-text.ts"
import { previewSlug } from "#schemas/names.ts"
import { Preview, type PreviewSpec } from "#schemas/preview.ts"
import type { PullRequest } from "#src/git/ForgeClient.ts"
import type { Change } from "#src/store/change.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import type { Previewed } from "./PullRequestLooks.ts"

export const decodePreview = Schema.decodeUnknownOption(Preview.spec)
const complete = Schema.decodeUnknownSync(Preview.spec)
const isTitle = Schema.is(lineOf(300))

/** Undefined: nothing is to be changed. */
export const changeFor = (
  projectId: string,
  repository: string,
  pull: PullRequest,
  there: ResourceRecord | undefined
): Change | undefined => {
  const told = {
    commit: pull.head.commit,
    title: isTitle(pull.title) ? pull.title : null
  }
  if (there === undefined)
    return {
      ...{ action: "create", uid: randomUUIDv7(), kind: Preview.name, projectId, environment: null },
      ...{ name: previewSlug(pull.number), parentUid: projectId, managedBy: "api" },
      // The forge says when it is over.
      spec: complete({
        ...told,
        pullRequest: pull.number,
        fork: pull.isFork,
        expiresAt: null,
        followed: true,
        repository
      })
    }
  const before = Option.getOrUndefined(decodePreview(there.spec))
  if (before === undefined) return undefined
  // Whoever made it may have said that it is none, and the forge knows better; never the other way round.
  const after: PreviewSpec = {
    ...before,
    ...told,
    fork: before.fork || pull.isFork,
    followed: true,
    repository
  }
  return isDeepStrictEqual(before, after)
    ? undefined
    : { action: "update", uid: there.uid, spec: after, expectedGeneration: there.generation }
}

/** The repository whose pull request it follows, null if that is not known; undefined: somebody made it by hand. */
export const followedOf = (spec: unknown) => {
  const preview = Option.getOrUndefined(decodePreview(spec))
  return preview?.followed === true ? preview.repository : undefined
}

/** What is forgotten of a pull request that is not open lets it have a preview when it is opened again. */
export const previewedNow = (
  open: ReadonlyArray<PullRequest>,
  before: Previewed,
  there: ReadonlySet<string>
): Previewed =>
  Object.fromEntries(
    open.flatMap(({ number, head }) => {
      const commit = there.has(previewSlug(number)) ? head.commit : before[number]
      return commit === undefined ? [] : [[number, commit]]
    })
  )
