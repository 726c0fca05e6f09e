/** The regions that new resources may be placed in, as the catalogue in force has them. */
import * as Context from "effect/Context"
import type { RegionIds } from "#schemas/placement.ts"

export class Regions extends Context.Service<Regions, RegionIds>()("svc/api/Regions") {}
