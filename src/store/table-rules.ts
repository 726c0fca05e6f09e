/**
 * What holds for a table of the state store, stated by the feature that owns it. The store works by these rules and
 * knows no feature: it seals values anew, removes old rows, and empties tables when an organization goes. A test
 * fails for a table without a rule.
 */
import * as Context from "effect/Context"

export interface TableRule {
  readonly name: string
  /** Present when the table has sealed values, in the columns `key_id` and `sealed`. */
  readonly sealed?: SealedValues
  /** Present when rows go by age. */
  readonly retention?: Retention
  readonly onOrganizationDeletion: OrganizationDeletion
}

export interface SealedValues {
  /** Columns of the primary key, in its order, with their types. */
  readonly key: ReadonlyArray<readonly [column: string, type: string]>
  /** The words that a value is bound to, from its primary key. */
  readonly place: (...key: ReadonlyArray<string>) => ReadonlyArray<string>
  /** Rows that are opened and sealed at a time, by how large their values may be. */
  readonly batch: number
}

/** Rows are removed in batches once `column` is further in the past than `age`, a Postgres interval. */
export interface Retention {
  readonly column: string
  readonly age: string
  /** A further condition in SQL, on the table as `t`. */
  readonly onlyIf?: string
}

/**
 * - `none`: rows belong to no organization.
 * - `delete`: rows go in the transaction that asks for the deletion. For what gives access, or would hold up the rest.
 * - `revoke`: `revoked_at` is set in that transaction (where `onlyIf` holds, in SQL); rows go by a foreign key.
 * - `drain`: rows go in batches (where `onlyIf` holds) once the organization's resources are gone, before its own row.
 * - `cascade`: rows go with the organization's row, or a resource's, by foreign keys.
 * - `keep`: rows stay until their retention or the feature itself removes them.
 */
export type OrganizationDeletion =
  | "none"
  | "delete"
  | "cascade"
  | "keep"
  | { readonly action: "revoke"; readonly onlyIf?: string }
  | { readonly action: "drain"; readonly onlyIf?: string }

/** Every rule of the program. Where order matters, as in draining, it is that of this list. */
export class TableRules extends Context.Service<TableRules, ReadonlyArray<TableRule>>()(
  "svc/store/TableRules"
) {}
