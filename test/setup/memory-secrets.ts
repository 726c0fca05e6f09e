/** Sealed values kept in memory: they outlive one control plane of a test and are handed to the next. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import { PlatformSecrets, type SecretRef, Secrets } from "#src/store/Secrets.ts"

export interface MemorySecrets {
  /** Writes as the API would, outside any control plane. */
  readonly write: (ref: SecretRef, value: Redacted.Redacted) => void
  readonly read: (ref: SecretRef) => Redacted.Redacted | undefined
  readonly layer: Layer.Layer<Secrets | PlatformSecrets>
}

export const memorySecrets = (): MemorySecrets => {
  const values = new Map<string, Map<string, Redacted.Redacted>>()
  const platform = new Map<string, Redacted.Redacted>()
  const of = ({ orgId, uid }: Omit<SecretRef, "field">) => {
    const key = `${orgId}/${uid}`
    const fields = values.get(key) ?? new Map<string, Redacted.Redacted>()
    values.set(key, fields)
    return fields
  }
  const write = (ref: SecretRef, value: Redacted.Redacted) => void of(ref).set(ref.field, value)
  const read = (ref: SecretRef) => of(ref).get(ref.field)

  return {
    write,
    read,
    layer: Layer.merge(
      Layer.succeed(Secrets, {
        read: (ref) => Effect.sync(() => Option.fromNullishOr(read(ref))),
        readAll: (ref, prefix) =>
          Effect.sync(() => new Map([...of(ref)].filter(([field]) => field.startsWith(prefix)))),
        write: (ref, value) => Effect.sync(() => write(ref, value)),
        prune: (ref, prefix, keep) =>
          Effect.sync(() => {
            const fields = of(ref)
            const gone = [...fields.keys()].filter(
              (field) => field.startsWith(prefix) && !keep.includes(field)
            )
            for (const field of gone) fields.delete(field)
            return gone.length
          })
      }),
      Layer.succeed(PlatformSecrets, {
        ensure: (name, make) =>
          Effect.gen(function* () {
            const existing = platform.get(name)
            if (existing !== undefined) return existing
            const made = yield* make
            // Another fiber may have been first while this one made its value.
            const stored = platform.get(name) ?? made
            platform.set(name, stored)
            return stored
          })
      })
    )
  }
}
