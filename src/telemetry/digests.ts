/**
 * One-way digests of what could lead to a person: HMAC-SHA-256 under the operator's key, cut to 128 bits. Each purpose has a
 * label of its own, so that the same id leaves unrelated digests; without the key nobody can try ids out.
 */
import { createHmac } from "node:crypto"
import * as Redacted from "effect/Redacted"

export type Key = Redacted.Redacted<Buffer>

const hmac = (key: Key | Buffer, ...words: ReadonlyArray<string>): Buffer =>
  createHmac("sha256", Redacted.isRedacted(key) ? Redacted.value(key) : key)
    .update(["svc-telemetry-v1", ...words].join("\0"))
    .digest()

export const digestOf = (key: Key, label: "anonymous" | "organization", id: string): Buffer =>
  hmac(key, label, id.toLowerCase()).subarray(0, 16)

/** Under a key of the day, so that nothing leads from one day's networks to another's. */
export const networkDigest = (key: Key, day: string, network: string): string =>
  hmac(hmac(key, "day", day), "network", network)
    .subarray(0, 16)
    .toString("hex")
