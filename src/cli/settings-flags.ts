/** Flags that set fields of a request: each is named in its group by the field, and what nobody gave is left out. */
import * as Option from "effect/Option"

type Field<V> = V extends Option.Option<infer A> ? A : V extends ReadonlyArray<unknown> ? V : Given<V>
type Optional<V> = V extends ReadonlyArray<unknown> | object ? true : false
/** What was given of a group of flags. Groups within it are objects, which are absent when nothing of them was given. */
export type Given<V> = {
  readonly [K in keyof V as Optional<V[K]> extends true ? K : never]?: Field<V[K]>
} & { readonly [K in keyof V as Optional<V[K]> extends true ? never : K]: V[K] }

export const given = <V extends object>(values: V): Given<V> =>
  Object.fromEntries(
    Object.entries(values).flatMap(([field, value]: [string, unknown]) => {
      const found = fieldOf(value)
      return found === undefined ? [] : [[field, found]]
    })
  ) as Given<V>

const fieldOf = (value: unknown): unknown => {
  if (Option.isOption(value)) return Option.getOrUndefined(value)
  if (Array.isArray(value)) return value.length === 0 ? undefined : value
  if (typeof value !== "object" || value === null) return value
  const group = given(value)
  return Object.keys(group).length === 0 ? undefined : group
}
