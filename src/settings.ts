/**
 * Common forms of settings. A feature states its own in `src/<feature>/settings.ts` as an Effect `Config`, which its
 * layers read from the process's variables when they are built.
 */
import * as Config from "effect/Config"
import * as Schema from "effect/Schema"

export const optional = (name: string) => Config.String(name).pipe(Config.withDefault(undefined))

const AtLeastOne = Schema.FiniteFromString.check(Schema.isInt(), Schema.isGreaterThanOrEqualTo(1))
export const atLeastOne = (name: string, fallback: number) =>
  Config.schema(AtLeastOne, name).pipe(Config.withDefault(fallback))

/** Commas between them; spaces around them count for nothing. */
export const list = (text: string) =>
  text
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "")
