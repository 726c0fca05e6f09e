/**
 * What is handed to agents: codes, access tokens, refresh tokens. All are random, and the store has their digests.
 *
 * A code and a refresh token also say which grant they are of, and a refresh token proves that it was issued here: a
 * refresh token of the grant that is not its newest one was used before, however long ago. So no row is kept of used
 * ones, and nobody can end a grant by making a token up.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto"
import * as Redacted from "effect/Redacted"
import { digestOf } from "#src/access/Access.ts"

/** A token as it is handed out, and what the store keeps of it. */
export interface Token {
  readonly token: Redacted.Redacted
  readonly digest: Buffer
}

/** A token that came in: the grant that it says it is of, and its digest. */
export interface Presented {
  readonly grantId: string
  readonly digest: Buffer
}

const made = (token: string): Token => ({ token: Redacted.make(token), digest: digestOf(token) })
const random = () => randomBytes(32).toString("hex")
const hexOf = (uuid: string) => uuid.replaceAll("-", "")
const uuidOf = (hex: string) => hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5")

const codeForm = /^svcc_([0-9a-f]{32})[0-9a-f]{64}$/
const refreshForm = /^(svcr_([0-9a-f]{32})[0-9a-f]{64})([0-9a-f]{32})$/

export const newAccessToken = (): Token => made(`svca_${random()}`)

export const newCode = (grantId: string): Token => made(`svcc_${hexOf(grantId)}${random()}`)

/** Undefined: it does not look like a code. */
export const readCode = (text: string): Presented | undefined => {
  const grant = codeForm.exec(text)?.[1]
  return grant === undefined ? undefined : { grantId: uuidOf(grant), digest: digestOf(text) }
}

export const refreshTokens = (key: Redacted.Redacted) => {
  const mac = (text: string) =>
    createHmac("sha256", Redacted.value(key)).update(`refresh ${text}`).digest("hex").slice(0, 32)
  return {
    make: (grantId: string): Token => {
      const body = `svcr_${hexOf(grantId)}${random()}`
      return made(`${body}${mac(body)}`)
    },
    /** Undefined: we never issued it. */
    read: (text: string): Presented | undefined => {
      const [, body, grant, given] = refreshForm.exec(text) ?? []
      if (body === undefined || grant === undefined || given === undefined) return undefined
      return timingSafeEqual(Buffer.from(mac(body)), Buffer.from(given))
        ? { grantId: uuidOf(grant), digest: digestOf(text) }
        : undefined
    }
  }
}
