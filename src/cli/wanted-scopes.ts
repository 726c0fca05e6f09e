/** The scopes that `svc login` asks for: ids of operations, of those that the control plane grants. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { Api } from "#src/api/definition/api.ts"
import { Operation } from "#src/api/definition/operation.ts"
import { type CliFailure, exitCodes, failure } from "#src/cli/failure.ts"

interface Wish {
  readonly role: "admin" | "member"
  readonly readOnly: boolean
  /** Ids, or beginnings of ids that end in `*`. None: everything that the role can do. */
  readonly scopes: ReadonlyArray<string>
}

/** Every sign-in may ask who it is. */
const always = "me.get"

const operations = (): ReadonlyMap<string, Operation> =>
  new Map(
    Object.values(Api.groups).flatMap((group) =>
      Object.values(group.endpoints).flatMap(({ annotations }): ReadonlyArray<[string, Operation]> => {
        const operation = Context.get(annotations, Operation)
        return operation === undefined ? [] : [[operation.id, operation]]
      })
    )
  )

const isNamedBy = (pattern: string) => (id: string) =>
  pattern.endsWith("*") ? id.startsWith(pattern.slice(0, -1)) : id === pattern

/** `grantable` is what the control plane says. What this program does not know of it is asked for by its full id only. */
export const wantedScopes = (
  { role, readOnly, scopes }: Wish,
  grantable: ReadonlyArray<string>
): Effect.Effect<ReadonlyArray<string>, CliFailure> => {
  const known = operations()
  const unfit = scopes.find((pattern) => !grantable.some(isNamedBy(pattern)))
  if (unfit !== undefined)
    return Effect.fail(failure(`No operation that can be granted is called "${unfit}"`, exitCodes.usage))
  const wanted = grantable.filter((id) => {
    if (id === always || scopes.includes(id)) return true
    const operation = known.get(id)
    if (operation === undefined || (role === "member" && operation.role === "admin")) return false
    if (readOnly && operation.risk !== "read") return false
    return scopes.length === 0 || scopes.some((pattern) => isNamedBy(pattern)(id))
  })
  return Effect.succeed(wanted)
}
