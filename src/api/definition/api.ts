/** Every operation there is. The server, the clients, the specification and the documentation come from here. */
import * as HttpApi from "effect/http-api/HttpApi"
import * as OpenApi from "effect/http-api/OpenApi"
import { features } from "#src/features.ts"
import { completed, type Generated } from "./openapi.ts"
import { Authorize } from "./scope.ts"

type Part = (typeof features)[number]
const [firstGroup, ...groups] = features.flatMap<Part["groups"][number]>((feature) => feature.groups)
const [firstPublic, ...publicGroups] = features.flatMap<Part["publicGroups"][number]>(
  (feature) => feature.publicGroups
)
if (firstGroup === undefined || firstPublic === undefined) throw new Error("No feature has operations")

const operations = HttpApi.make("svc")
  .add(firstGroup, ...groups)
  .middleware(Authorize)
  .add(firstPublic, ...publicGroups)
  .annotate(HttpApi.PayloadParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.ParamsParseOptions, { errors: "all" })

export class Api extends operations
  .annotate(
    HttpApi.AdditionalSchemas,
    features.flatMap((feature) => feature.schemas)
  )
  .annotateMerge(
    OpenApi.annotations({
      title: "svc control plane",
      version: "1",
      description:
        "Resources are stored as desired state and converged by reconcile loops. Errors are problem details (RFC 9457).",
      license: { name: "MIT", identifier: "MIT" },
      // Wherever the document comes from; the served one names the public address.
      servers: [{ url: "/" }],
      transform: (document) =>
        completed(
          document as Generated,
          Object.values(operations.groups),
          features.map(({ described }) => described())
        )
    })
  ) {}
