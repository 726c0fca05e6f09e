import type { DeploymentView } from "#src/deployments/api.ts"

/** What a deployment was made of, in a few words. */
export const sourceText = (source: DeploymentView["source"]): string => {
  switch (source.kind) {
    case "image":
      return source.image
    case "upload":
      return `upload ${source.digest.slice(0, 12)}`
    case "git":
      return `${source.url}@${source.commit.slice(0, 12)}`
  }
}
