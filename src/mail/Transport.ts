/**
 * Handing a mail over to what carries it: an SMTP server, or on a machine that has none a folder of `.eml` files,
 * which any mail program opens.
 *
 * The message id is made of the mail's own id, so that a mail that is handed over twice (the answer to the first
 * time was lost) is seen to be the same by whoever receives it.
 */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { SendMailOptions } from "nodemailer"
import { AppConfig } from "#src/config.ts"
import { settings } from "./settings.ts"

export interface Parcel {
  readonly id: string
  readonly to: string
  readonly subject: string
  readonly text: string
  readonly createdAt: Date
}

/** The server cannot be reached or does not let us in: no mail goes through now, and all of them wait. */
export class Unreachable extends Schema.TaggedError<Unreachable>()("Unreachable", {
  message: Schema.String
}) {}

/** The server does not take this mail now. */
export class Deferred extends Schema.TaggedError<Deferred>()("Deferred", { message: Schema.String }) {}

/** There is no such mailbox. */
export class Rejected extends Schema.TaggedError<Rejected>()("Rejected", { message: Schema.String }) {}

export type TransportError = Unreachable | Deferred | Rejected

export class Transport extends Context.Service<
  Transport,
  { readonly send: (parcel: Parcel) => Effect.Effect<void, TransportError> }
>()("svc/mail/Transport") {
  /** SMTP when a server is configured, else the folder. */
  static readonly layer = Layer.effect(
    Transport,
    Effect.gen(function* () {
      const { dataDir, publicUrl } = yield* AppConfig
      const { smtpUrl, dir, from = `svc <no-reply@${domainOf(publicUrl)}>` } = yield* settings
      return smtpUrl === undefined
        ? toFolder(dir ?? path.join(dataDir, "mail"), from)
        : yield* toServer(smtpUrl, from)
    })
  )
}

/** A wrong public URL is reported by whoever needs it; mail then comes from this machine. */
const domainOf = (publicUrl: string) =>
  URL.canParse(publicUrl) && !/^[[\d]/.test(new URL(publicUrl).hostname)
    ? new URL(publicUrl).hostname
    : "localhost"

/** Loaded with the first mail, so that a start does not wait for it. */
const loadMailer = () => import("nodemailer")

const optionsOf = (parcel: Parcel, from: string): SendMailOptions => ({
  from,
  // As an object, an address is one address, whatever is in it.
  to: { name: "", address: parcel.to },
  subject: parcel.subject,
  text: parcel.text,
  messageId: `<${parcel.id}@${/@([\w.-]+)>?$/.exec(from)?.[1] ?? "localhost"}>`,
  date: parcel.createdAt,
  headers: { "auto-submitted": "auto-generated" },
  disableFileAccess: true,
  disableUrlAccess: true
})

const isLoopback = (host: string) => /^(localhost|127(\.\d+){3}|\[::1\])$/.test(host)

const toServer = Effect.fnUntraced(function* (url: Redacted.Redacted, from: string) {
  const { protocol, hostname, port, username, password } = new URL(Redacted.value(url))
  const secure = protocol === "smtps:"
  const { createTransport } = yield* Effect.promise(loadMailer)
  const transporter = yield* Effect.acquireRelease(
    Effect.sync(() =>
      createTransport({
        host: hostname.replaceAll(/[[\]]/g, ""),
        port: port === "" ? (secure ? 465 : 587) : Number(port),
        secure,
        // A password goes over an encrypted connection or not at all, unless it stays on this machine.
        requireTLS: !secure && username !== "" && !isLoopback(hostname),
        ...(username === ""
          ? {}
          : { auth: { user: decodeURIComponent(username), pass: decodeURIComponent(password) } }),
        connectionTimeout: 10_000,
        greetingTimeout: 10_000,
        socketTimeout: 30_000
      })
    ),
    (open) => Effect.sync(() => open.close())
  )
  return Transport.of({
    send: (parcel) =>
      Effect.tryPromise({
        try: () => transporter.sendMail(optionsOf(parcel, from)),
        catch: (cause) => failureOf(cause)
      }).pipe(
        Effect.timeoutOrElse({
          duration: "90 seconds",
          orElse: () => new Unreachable({ message: "The mail server did not finish in 90 s" })
        }),
        Effect.asVoid
      )
  })
})

const Failure = Schema.Struct({
  code: Schema.optional(Schema.String),
  responseCode: Schema.optional(Schema.Int),
  response: Schema.optional(Schema.String),
  message: Schema.optional(Schema.String)
})
const isFailure = Schema.is(Failure)

/** Codes of nodemailer's errors that are about one message and not about the connection or the login. */
const aboutOneMail = new Set(["EENVELOPE", "EMESSAGE", "ESTREAM"])
/** RFC 5321, section 4.2.3: mailbox unavailable, not local, not allowed. RFC 3463: 5.7 is a policy, which may change. */
const noMailbox = new Set([550, 551, 553])

const failureOf = (cause: unknown): TransportError => {
  if (!isFailure(cause)) return new Unreachable({ message: "The mail server cannot be reached" })
  const said = cause.response ?? cause.message ?? "it gave no reason"
  if (!aboutOneMail.has(cause.code ?? "")) {
    return new Unreachable({ message: `The mail server cannot be used: ${said}` })
  }
  const permanent = noMailbox.has(cause.responseCode ?? 0) && !/\b5\.7\.\d/.test(said)
  return permanent
    ? new Rejected({ message: `The mail server refused the recipient: ${said}` })
    : new Deferred({ message: `The mail server did not take the mail: ${said}` })
}

const toFolder = (folder: string, from: string) =>
  Transport.of({
    send: Effect.fnUntraced(function* (parcel) {
      // The time first, so that a listing is in order.
      const stamp = parcel.createdAt.toISOString().replaceAll(/[:.]/g, "-")
      const file = path.join(folder, `${stamp}-${parcel.id}.eml`)
      yield* Effect.tryPromise({
        try: async () => {
          const { createTransport } = await loadMailer()
          const composer = createTransport({ streamTransport: true, buffer: true, newline: "windows" })
          const { message } = await composer.sendMail(optionsOf(parcel, from))
          await fs.mkdir(folder, { recursive: true, mode: 0o700 })
          // It holds what signs its reader in: for this user alone, and there only once it is whole.
          await fs.writeFile(`${file}.tmp`, message, { mode: 0o600, flush: true })
          await fs.rename(`${file}.tmp`, file)
        },
        catch: (cause) =>
          new Unreachable({
            message: `The folder for mail ${folder} cannot be written: ${cause instanceof Error ? cause.message : "unknown"}`
          })
      })
      yield* Effect.logInfo(`mail for ${parcel.to}, "${parcel.subject}", is in ${file}`)
    })
  })
