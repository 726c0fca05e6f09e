/**
 * What a request has before its first write: the id of what it makes, and a seed for the secrets it makes. All tries of
 * one request with an `Idempotency-Key` have the same, so that a later try finds what an earlier one made, and answers
 * the secrets that are in force.
 */
import { hkdfSync, randomBytes, randomUUIDv7 } from "node:crypto"
import * as Redacted from "effect/Redacted"

export interface Reservation {
  /** Of version 7. */
  readonly uid: string
  /** 256 random bits. */
  readonly seed: Redacted.Redacted
  /** The request has a key, and may be tried again. */
  readonly keyed: boolean
  /** An earlier try of the request was not answered, and may have taken effect. */
  readonly again: boolean
}

/** Made when it is asked for: most requests make nothing, and random bits cost as much as a look for their credential. */
export const newReservation = (keyed: boolean): Reservation => {
  let uid: string | undefined
  let seed: Redacted.Redacted | undefined
  return {
    get uid() {
      uid ??= randomUUIDv7()
      return uid
    },
    get seed() {
      seed ??= Redacted.make(randomBytes(32).toString("base64url"))
      return seed
    },
    keyed,
    again: false
  }
}

/** When the first try began, by the clock of its process. */
export const reservedAt = ({ uid }: Reservation): Date =>
  new Date(Number.parseInt(uid.slice(0, 13).replace("-", ""), 16))

/** Random bytes that are the same in every try. `purpose` tells apart what one request makes. */
export const randomBytesOf = ({ uid, seed }: Reservation, purpose: string, length: number): Buffer =>
  Buffer.from(hkdfSync("sha256", Redacted.value(seed), uid, purpose, length))

/** Ids of `count` things that a request makes, at most a thousand, in their order. They are the same in every try. */
export const uidsOf = (reservation: Reservation, purpose: string, count: number): ReadonlyArray<string> => {
  if (count === 0) return []
  const random = randomBytesOf(reservation, purpose, count * 8)
  return Array.from({ length: count }, (_, index) => {
    const bits = random.subarray(index * 8, index * 8 + 8)
    bits.writeUInt8((bits.readUInt8(0) & 0x3f) | 0x80, 0)
    const [order, rest] = [index.toString(16).padStart(3, "0"), bits.toString("hex")]
    // The time, the version and the variant are those of the reserved id (RFC 9562, section 5.7).
    return `${reservation.uid.slice(0, 13)}-7${order}-${rest.slice(0, 4)}-${rest.slice(4)}`
  })
}
