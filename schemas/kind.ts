/**
 * What the rest of the system needs to know about a kind of resource, as data.
 *
 * A kind says what its specification looks like, where it lives, what may not change, what it depends on and
 * how it appears in a manifest. It does no I/O. How the kind becomes real is told by its reconciler.
 */
import * as Schema from "effect/Schema"
import type { Reason } from "./condition.ts"
import type { ManifestSection } from "./manifest-mapping.ts"
import type { Reference } from "./reference.ts"

/** Specifications and status are plain JSON: the stored form is the form the program works with. */
export type Json = Schema.Json

export type Scope = "organization" | "project" | "environment"
export type Role = "member" | "admin" | "owner"
/**
 * Which processes may work on a resource. `any`: every one, because the kind lives in the store or is reached over the
 * network. `host`: those of the region that its specification names, because the real thing is on a machine there.
 */
export type Placement = "any" | "host"

export interface Kind<
  out Name extends string = string,
  out Spec = unknown,
  out Status = unknown,
  out Facts = unknown,
  out Section extends ManifestSection = ManifestSection
> {
  readonly name: Name
  /** Opens the kind's page of the documentation: one sentence. */
  readonly summary: string
  /** What the resource lives in: an organization, a project, or one environment of a project. */
  readonly scope: Scope
  readonly placement: Placement
  /** Decoding fills in every default, so that what is stored is complete. */
  readonly spec: Schema.Codec<Spec, unknown>
  /**
   * Brings a specification that an earlier release stored into the present shape, wherever one is read from the store; the
   * next write stores that shape. It must leave the present shape as it is. Fields that merely got a default need none of
   * it. SQL that looks into specifications has to know both shapes until no row has the old one.
   */
  readonly upgrade?: (stored: Json) => Json
  readonly status: Schema.Codec<Status, unknown>
  /**
   * What stays true of the real thing whether or not it can be seen, such as that it once held data. No look takes a
   * fact away: a later one replaces single keys. Every key is optional, because a new resource has none.
   */
  readonly facts: Schema.Codec<Facts, object>
  /** Top-level fields of the specification. */
  readonly fields: ReadonlyArray<string>
  /** Top-level fields of the specification that can only change by replacing the resource. */
  readonly immutable: ReadonlyArray<string>
  /** Top-level fields of the specification that the platform sets: no manifest, plan or export shows them. */
  readonly internal: ReadonlyArray<string>
  /** Secret fields that get a random value when the resource is made. */
  readonly generated: ReadonlyArray<string>
  /** Which fields of the specification name other resources. */
  readonly references: ReadonlyArray<Reference>
  /**
   * Whether the field `region` of its specification names a region of the catalogue. So it is for every kind that is placed
   * on a host; for another kind the field says where its work is to be done, and may be absent.
   */
  readonly regional: boolean
  /** Whether its scope can hold only one. */
  readonly singleton: boolean
  /** Who may delete it; a plan that deletes needs the same role. */
  readonly deleteRole: Role
  /** Reasons of conditions that only this kind gives. One that is declared nowhere counts as a warning. */
  readonly reasons: Readonly<Record<string, Reason>>
  /**
   * The field of the specification that holds, by key, the fingerprints of values that users give and that are sealed.
   * A manifest holds the values themselves there; exports and plans show them masked.
   */
  readonly sealed?: {
    readonly field: string
    /** Secret field under which the value of one key is sealed. */
    readonly secret: (key: string) => string
    /** The field that holds names of some of the keys. An entry of a manifest that does not tell of it leaves it as it is. */
    readonly marks?: string
  }
  /** How the kind appears in a manifest; absent for a kind that no manifest tells of. */
  readonly manifest?: Section
  /** How long, in seconds, a phase that is not final may take before the resource counts as stalled. */
  readonly deadlineSeconds: number
}

const NoFacts = Schema.Struct({})
export type NoFacts = typeof NoFacts.Type

/** What a kind may leave out: most kinds keep no facts, can be worked on anywhere, and name a region if they cannot. */
type Optional = "facts" | Usual
type Usual = "placement" | "regional"
type Partly<K extends Kind> = Omit<K, Optional> & Partial<Pick<K, Optional>>

/** Keeps the literal name and the types while checking the shape, and completes what is left out. */
export function defineKind<
  const Name extends string,
  Spec,
  Status,
  Facts,
  Section extends ManifestSection = never
>(
  kind: Omit<Kind<Name, Spec, Status, Facts, Section>, Usual> & Partial<Pick<Kind, Usual>>
): Kind<Name, Spec, Status, Facts, Section>
export function defineKind<const Name extends string, Spec, Status, Section extends ManifestSection = never>(
  kind: Partly<Kind<Name, Spec, Status, unknown, Section>>
): Kind<Name, Spec, Status, NoFacts, Section>
export function defineKind(kind: Partly<Kind>): Kind {
  return { facts: NoFacts, placement: "any", regional: kind.placement === "host", ...kind }
}

/** The name of a kind within a sentence: `backup destination`. */
export const kindInWords = (name: string): string => name.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase()
