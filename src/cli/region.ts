/** `--region`, and the region that is meant without it. */
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Client, call } from "./client.ts"
import { failure } from "./failure.ts"

export const region = Flag.String("region").pipe(
  Flag.withDescription("Where it is placed (default: the first region of the control plane's catalogue)"),
  Flag.optional
)

/** The region that the flag names; else the first of the catalogue, which any project's members may read. */
export const regionOr = Effect.fnUntraced(function* (
  named: Option.Option<string>,
  { orgId, projectId }: { readonly orgId: string; readonly projectId: string }
) {
  if (Option.isSome(named)) return named.value
  const { asMember } = yield* Client
  const { regions } = yield* call(asMember.executions.availability({ params: { orgId, projectId } }))
  return regions[0]?.id ?? (yield* failure("The control plane has no region; say --region"))
})
