/** Previews hold copies of production data only where the project allows it. */
import { manifestBranch } from "#schemas/database-branch.ts"
import type { ManifestProject } from "#schemas/manifest.ts"
import type { Path } from "#src/api/source-location.ts"
import { addressOf } from "#src/store/records.ts"
import type { Draft } from "./draft.ts"
import { asObject } from "./patch.ts"

/** Told before anything is made: otherwise a branch would be there that never becomes ready. */
export const blockForbiddenCopy = (draft: Draft, project: ManifestProject, at: Path): void => {
  const { databaseBranch: branch, slug } = project
  if (branch?.sourceEnvironment !== "production") return
  // What was copied when it was allowed stays.
  const address = addressOf({ kind: "DatabaseBranch", project: slug, ...manifestBranch })
  const there = draft.state.byAddress.get(address)
  if (there !== undefined && asObject(there.spec)["sourceEnvironment"] === "production") return
  // A manifest that does not say so takes a consent of before back.
  if (project.previewData === "allowed") return
  draft.block(
    [...at, "databaseBranch", "sourceEnvironment"],
    "preview_data_forbidden",
    "The project does not allow copies of production data in previews; say so in it with previewData: allowed"
  )
}
