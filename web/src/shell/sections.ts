/** The pages that the navigation and the palette lead to. */
import { pathTo, withQuery } from "../router.ts"
import { kindNames } from "./kind-names.ts"

export interface Section {
  readonly name: string
  readonly path: string
  /** Kind of which the section lists the resources. */
  readonly kind?: string
}

export const mainSections = (org: string): ReadonlyArray<Section> => [
  { name: "Overview", path: pathTo(org) },
  { name: "Resources", path: pathTo(org, "resources") },
  { name: "Plan", path: pathTo(org, "plan") },
  { name: "Audit log", path: pathTo(org, "audit") },
  { name: "Members", path: pathTo(org, "members") },
  { name: "Projects", path: pathTo(org, "projects") },
  { name: "Webhooks", path: pathTo(org, "webhooks") },
  { name: "Keys and agents", path: pathTo(org, "keys") },
  { name: "Git", path: pathTo(org, "git") },
  { name: "Backup destinations", path: pathTo(org, "destinations") }
]

/** One for each kind of resource: what has no page of its own is listed all the same. */
export const kindSections = (org: string): ReadonlyArray<Section> =>
  kindNames.map(([kind, name]) => ({
    name,
    kind,
    path: withQuery(pathTo(org, "resources"), { kind })
  }))
