/**
 * Passwords are kept as Argon2id hashes (RFC 9106), which cost an attacker memory as well as time. The parameters are
 * OWASP's first choice and stand in the hash itself (as a PHC string), so that they can be raised later.
 */
import { argon2, randomBytes, timingSafeEqual } from "node:crypto"
import { promisify } from "node:util"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Redacted from "effect/Redacted"
import * as Semaphore from "effect/Semaphore"

const cost = { memory: 19_456, passes: 2, parallelism: 1 }
const tagLength = 32
const saltLength = 16
/** Hashes under way at once: many sign-ins at a time must not take the process's memory. */
const atOnce = 4

/** NIST SP 800-63B: length matters, composition does not. */
export const shortestPassword = 10
const longestPassword = 256

/** Why a password will not do for somebody with this address; undefined: it will. */
export const passwordFault = (password: string, email: string): string | undefined => {
  const text = password.normalize("NFKC")
  const length = [...text].length
  if (length < shortestPassword) return `must have at least ${shortestPassword} characters`
  if (length > longestPassword) return `must have at most ${longestPassword} characters`
  if (/^(.)\1*$/su.test(text)) return "must be more than one character repeated"
  const own = email.split("@", 1)[0] ?? email
  if (length < 20 && text.toLowerCase().includes(own)) return "must not be made of your e-mail address"
  return undefined
}

const derive = promisify(argon2)

const hashes = Metric.counter("svc_password_hashes_total", {
  description: "Password hashes computed: the costly part of trying to sign in",
  incremental: true
})

type Cost = typeof cost

const hashed = (password: string, salt: Buffer, { memory, passes, parallelism }: Cost, length: number) =>
  Effect.tap(
    Effect.promise(() =>
      derive("argon2id", {
        // The same password typed on two keyboards may be two sequences of code points.
        message: Buffer.from(password.normalize("NFKC"), "utf8"),
        nonce: salt,
        memory,
        passes,
        parallelism,
        tagLength: length
      })
    ),
    () => Metric.update(hashes, 1)
  )

const encode = (bytes: Buffer) => bytes.toString("base64").replaceAll("=", "")

const phc = /^\$argon2id\$v=19\$m=(\d{1,8}),t=(\d{1,3}),p=(\d{1,2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/

const parse = (text: string) => {
  const [, memory, passes, parallelism, salt, tag] = phc.exec(text) ?? []
  if (salt === undefined || tag === undefined) return undefined
  return {
    cost: { memory: Number(memory), passes: Number(passes), parallelism: Number(parallelism) },
    salt: Buffer.from(salt, "base64"),
    tag: Buffer.from(tag, "base64")
  }
}

export class Passwords extends Context.Service<
  Passwords,
  {
    readonly hash: (password: Redacted.Redacted) => Effect.Effect<string>
    /** Without a hash it takes as long and answers false, so that time does not tell who has an account. */
    readonly verify: (password: Redacted.Redacted, hash: string | null) => Effect.Effect<boolean>
  }
>()("svc/identity/Passwords") {
  static readonly layer = Layer.effect(
    Passwords,
    Effect.gen(function* () {
      const permits = yield* Semaphore.make(atOnce)
      const nobody = { cost, salt: randomBytes(saltLength), tag: randomBytes(tagLength) }
      return Passwords.of({
        hash: (password) =>
          permits.withPermit(
            Effect.gen(function* () {
              const salt = randomBytes(saltLength)
              const tag = yield* hashed(Redacted.value(password), salt, cost, tagLength)
              const { memory, passes, parallelism } = cost
              return `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}$${encode(salt)}$${encode(tag)}`
            })
          ),
        verify: (password, hash) =>
          permits.withPermit(
            Effect.gen(function* () {
              const stored = hash === null ? undefined : parse(hash)
              const against = stored ?? nobody
              const tag = yield* hashed(
                Redacted.value(password),
                against.salt,
                against.cost,
                against.tag.length
              )
              return timingSafeEqual(tag, against.tag) && stored !== undefined
            })
          )
      })
    })
  )
}
