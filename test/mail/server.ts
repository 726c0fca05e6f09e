/** A real SMTP server on loopback whose moods a test decides. */
import * as Effect from "effect/Effect"
import { SMTPServer } from "smtp-server"
import { freePort } from "#test/setup/postgres.ts"

export interface Received {
  readonly to: string
  readonly source: string
  readonly messageId: string
}

export interface MailServer {
  readonly port: number
  readonly received: Array<Received>
  /** Who gave a password. */
  readonly logins: Array<string>
  /** How many wait for the answer that does not come. */
  readonly hanging: number
  /** Answers each recipient with this code instead of taking it; undefined takes it. */
  refuse: ((to: string) => { readonly code: number; readonly text: string } | undefined) | undefined
  /** Says nothing when it is told who a mail is for. */
  hang: boolean
  /** Takes a mail and drops the connection before it says so. */
  vanishAfterData: number
  readonly start: Effect.Effect<void>
  readonly stop: Effect.Effect<void>
}

/** Not started: nobody answers on its port until then. */
export const mailServer = Effect.fn(function* (wanted?: number, secure = false) {
  const port = wanted ?? (yield* Effect.promise(freePort))
  let running: SMTPServer | undefined
  let hanging = 0
  const self: MailServer = {
    port,
    received: [],
    logins: [],
    get hanging() {
      return hanging
    },
    refuse: undefined,
    vanishAfterData: 0,
    hang: false,
    start: Effect.promise(async () => {
      const server = new SMTPServer({
        secure,
        authOptional: true,
        disabledCommands: ["STARTTLS"],
        allowInsecureAuth: true,
        // Whoever was left hanging is not waited for.
        closeTimeout: 100,
        onAuth: (auth, _, done) => {
          self.logins.push(auth.username ?? "")
          auth.password === "right" ? done(null, { user: auth.username }) : done(new Error("no"))
        },
        onRcptTo: ({ address }, _, done) => {
          if (self.hang) {
            hanging++
            return
          }
          const no = self.refuse?.(address)
          if (no === undefined) return done()
          done(Object.assign(new Error(no.text), { responseCode: no.code }))
        },
        onData: (stream, session, done) => {
          let source = ""
          stream.on("data", (chunk: Buffer) => {
            source += chunk.toString("utf8")
          })
          stream.on("end", () => {
            const messageId = /^message-id: (.+)$/im.exec(source)?.[1]?.trim() ?? ""
            for (const { address } of session.envelope.rcptTo) {
              self.received.push({ to: address, source: unfold(source), messageId })
            }
            if (self.vanishAfterData > 0) {
              self.vanishAfterData--
              stream.destroy()
              for (const connection of server.connections) connection.close()
              return
            }
            done()
          })
        }
      })
      server.on("error", () => {
        // A client that hung up; the test looks at what the client made of it.
      })
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject)
        server.listen(port, "0.0.0.0", resolve)
      })
      running = server
    }),
    stop: Effect.promise(async () => {
      const server = running
      running = undefined
      if (server !== undefined) await new Promise<void>((resolve) => server.close(() => resolve()))
    })
  }
  yield* Effect.addFinalizer(() => self.stop)
  return self
})

/** Quoted-printable text as it was written. */
const unfold = (source: string): string =>
  source
    .replaceAll("=\r\n", "")
    .replaceAll(/=([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
