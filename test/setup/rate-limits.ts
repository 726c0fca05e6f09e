/** Limits of rates in tests: how much time passes between two requests is up to the machine. */
import * as Effect from "effect/Effect"
import { Plane } from "./control-plane.ts"

/** From here on no bucket of the plane refills: what is used up stays used up, however slow the requests are. */
export const bucketsStandStill = Effect.gen(function* () {
  const { sql } = yield* Plane
  yield* sql(`create function bucket_stands_still() returns trigger language plpgsql as
    'begin new.updated_at := now() + interval ''1 day''; return new; end'`)
  yield* sql(`create trigger bucket_stands_still before insert or update on rate_limit
    for each row execute function bucket_stands_still()`)
  yield* sql("update rate_limit set updated_at = now()")
})
