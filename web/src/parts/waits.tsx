import { kindInWords } from "#schemas/kind.ts"
import { useCaller } from "../caller.ts"
import { type Resource, useLive } from "../live/resources.ts"
import { waitsOf } from "../live/waits.ts"
import { pathTo } from "../router.ts"
import { Link } from "./link.tsx"

/** “Waits for database main, which waits for …”; nothing, where it waits for none. */
export const Waits = ({ resource }: { readonly resource: Resource }) => {
  const { org } = useCaller()
  const { byUid } = useLive()
  return waitsOf(resource, byUid).map(({ uid, kind, name }, index) => (
    <span key={uid}>
      {index === 0 ? "Waits for " : ", which waits for "}
      {kindInWords(kind)}{" "}
      <Link to={pathTo(org.slug, "resources", uid)} className="text-accent underline" dir="auto">
        {name}
      </Link>
    </span>
  ))
}
