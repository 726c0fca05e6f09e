/**
 * What the path of the request at hand names, as the gate found it. Which of these an operation has is told by its
 * `target`; asking for another one is a fault of the program.
 */
import * as Effect from "effect/Effect"
import type { ResourceRecord } from "#src/store/records.ts"
import { type Found, RequestScope } from "./definition/scope.ts"

type Of<Type extends Found["type"]> = Extract<Found, { readonly type: Type }>

const withTarget = <A>(choose: (found: Found) => A | undefined): Effect.Effect<A, never, RequestScope> =>
  Effect.flatMap(RequestScope, ({ found, operation }) => {
    const chosen = choose(found)
    return chosen === undefined
      ? Effect.die(new Error(`The target of ${operation.id} is of the type ${found.type}`))
      : Effect.succeed(chosen)
  })

/** The resource. */
export const targetRecord: Effect.Effect<ResourceRecord, never, RequestScope> = withTarget((found) =>
  found.type === "resource" ? found.record : undefined
)

/** The project, with the environment of the query if it names one. */
export const targetProject: Effect.Effect<Of<"project">, never, RequestScope> = withTarget((found) =>
  found.type === "project" ? found : undefined
)

/** The environment. */
export const targetEnvironment: Effect.Effect<Of<"environment">, never, RequestScope> = withTarget((found) =>
  found.type === "environment" ? found : undefined
)
