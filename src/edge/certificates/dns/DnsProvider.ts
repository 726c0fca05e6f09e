/**
 * Who writes records that prove a name by DNS-01 (RFC 8555, section 8.4). One for each protocol of name servers;
 * `rfc2136.ts` is the standard's.
 */
import type * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

/** The records could not be written. */
export class DnsProviderError extends Schema.TaggedError<DnsProviderError>()("DnsProviderError", {
  message: Schema.String
}) {}

export interface TextRecord {
  /** Without a dot at its end. */
  readonly name: string
  /** Letters, digits, `-` and `_`. */
  readonly value: string
}

export interface DnsProvider {
  /** Whether it can write records of this name. */
  readonly covers: (name: string) => boolean
  /** Adds a text beside those that the name has. Done once the authority may ask for it; repeatable. */
  readonly add: (record: TextRecord) => Effect.Effect<void, DnsProviderError>
  /** Removes this text alone; one that is not there is success. */
  readonly remove: (record: TextRecord) => Effect.Effect<void, DnsProviderError>
}
