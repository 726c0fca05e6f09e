/** What checks look at, and what a check is. */
import type * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Kind } from "#schemas/kind.ts"
import type { MaintenanceCategory } from "#schemas/maintenance.ts"
import type { ResourceRecord } from "#src/store/records.ts"
import type { StoreUnavailable } from "#src/store-unavailable.ts"
import type { Finding } from "./finding.ts"

/** A project as it was stored at one moment. */
export interface Look {
  readonly orgId: string
  /** Milliseconds. */
  readonly now: number
  /** The project itself and what is in it, of the environments that are looked at; nothing that is being deleted. */
  readonly resources: ReadonlyArray<ResourceRecord>
  /** What is in environments that are not looked at. */
  readonly elsewhere: ReadonlyArray<ResourceRecord>
  /** What is being deleted of it. */
  readonly leaving: ReadonlyArray<ResourceRecord>
  /** Backup destinations of the organization. */
  readonly destinations: ReadonlyArray<ResourceRecord>
}

/** What a check could not judge this time, as what it goes by was not measured or not observed. */
export interface Unknown {
  /** Of the finding that it would have been. */
  readonly unknown: string
}

/** Looks at a project and changes nothing. Of what it tells nothing, it knows that there is nothing to find. */
export type Check = (look: Look) => Effect.Effect<ReadonlyArray<Finding | Unknown>, StoreUnavailable>

/** A resource whose specification, and status if there is one, is of the kind. */
export interface Typed<Spec, Status> {
  readonly record: ResourceRecord
  readonly spec: Spec
  readonly status: Status | undefined
}

/** Those of a kind. One whose specification this release cannot read is left out: its conditions say so. */
export const ofKind = <Spec, Status>({
  name,
  spec,
  status
}: Pick<Kind<string, Spec, Status>, "name" | "spec" | "status">) => {
  const specOf = Schema.decodeUnknownOption(spec)
  const statusOf = Schema.decodeUnknownOption(status)
  return (records: ReadonlyArray<ResourceRecord>): ReadonlyArray<Typed<Spec, Status>> =>
    records.flatMap((record) => {
      if (record.kind !== name) return []
      const decoded = Option.getOrUndefined(specOf(record.spec))
      return decoded === undefined
        ? []
        : [{ record, spec: decoded, status: Option.getOrUndefined(statusOf(record.status)) }]
    })
}

/** A finding of a check about a resource; `check` is the same word for ever. */
export const findingOf = (
  category: MaintenanceCategory,
  check: string,
  { kind, uid, name, environment }: ResourceRecord,
  {
    basis = "",
    ...rest
  }: Omit<Finding, "category" | "key" | "subject" | "basis"> & { readonly basis?: string }
): Finding => ({
  key: keyOf(check, uid),
  category,
  subject: { kind, id: uid, name, environment },
  basis: `${check} ${basis}`.trim(),
  ...rest
})

export const unknownOf = (check: string, { uid }: ResourceRecord): Unknown => ({ unknown: keyOf(check, uid) })

const keyOf = (check: string, uid: string) => `${check}:${uid}`

export const hourMs = 3_600_000
export const dayMs = 24 * hourMs

/** As people read it: whole days from two on, else whole hours. */
export const spanInWords = (ms: number): string => {
  const [count, unit] =
    ms >= 2 * dayMs ? [Math.floor(ms / dayMs), "day"] : [Math.max(0, Math.floor(ms / hourMs)), "hour"]
  return `${count} ${unit}${count === 1 ? "" : "s"}`
}
