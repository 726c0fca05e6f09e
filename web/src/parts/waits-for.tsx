import { Fragment } from "react"
import { type Resource, useLive } from "../live/resources.ts"
import { type Awaited, awaitedBy } from "../live/waits.ts"
import { ResourceLink } from "./resource-link.tsx"

/** By address; made once for each state of the list, however many rows ask. */
let listed: { readonly of: ReadonlyArray<Resource>; readonly found: ReadonlyMap<string, Resource> } = {
  of: [],
  found: new Map()
}
const find = (all: ReadonlyArray<Resource>) => (address: string) => {
  if (listed.of !== all) listed = { of: all, found: new Map(all.map((one) => [one.address, one])) }
  return listed.found.get(address)
}

export const useAwaited = (resource: Resource): ReadonlyArray<Awaited<Resource>> =>
  awaitedBy(resource, find(useLive().all))

/** An arrow for each step to the deepest cause. */
export const Arrows = ({ to }: { readonly to: ReadonlyArray<Awaited<Resource>> }) =>
  to.map(({ address, resource }, index) => (
    <Fragment key={address}>
      <span className="text-faint">
        <span aria-hidden="true">→ </span>
        <span className="sr-only">{index === 0 ? "waits for " : "which waits for "}</span>
      </span>
      {resource === undefined ? (
        <span className="wrap-anywhere">
          <code className="font-mono text-[12.5px]">{address}</code>, which is not there
        </span>
      ) : (
        <ResourceLink resource={resource} full />
      )}{" "}
    </Fragment>
  ))
