import { kindInWords } from "#schemas/kind.ts"
import { useCaller } from "../caller.ts"
import type { Resource } from "../live/resources.ts"
import { pathTo } from "../router.ts"
import { Link } from "./link.tsx"

export const placeOf = ({ project, environment }: Resource): string =>
  [project, environment].filter((part) => part !== null).join(" / ")

/** `full`: with what it lies in. */
export const ResourceLink = ({
  resource,
  full = false
}: {
  readonly resource: Resource
  readonly full?: boolean
}) => {
  const { org } = useCaller()
  const place = full ? placeOf(resource) : ""
  return (
    <>
      <Link to={pathTo(org.slug, "resources", resource.uid)} className="hover:underline" dir="auto">
        {place !== "" && <span className="text-soft">{place} / </span>}
        <b className="font-semibold wrap-anywhere">{resource.name}</b>
      </Link>{" "}
      <span className="text-xs whitespace-nowrap text-faint">{kindInWords(resource.kind)}</span>
    </>
  )
}
