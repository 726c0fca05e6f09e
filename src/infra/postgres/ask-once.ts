/**
 * One question to a managed Postgres server with one text for an answer, over its Unix socket as the control user. It is
 * for questions that are put to every server many times an hour: a library's client, made for one statement and thrown
 * away, takes twice the processor time. A connection that is kept would cost the server one of its few sessions and
 * some megabytes. (PostgreSQL documentation, "Frontend/Backend Protocol", version 3.0.)
 *
 * The question is sent with the start-up message, since the server knows the user by the socket and asks for no password:
 * the process wakes up once for the answer and not for the greeting as well.
 */
import * as net from "node:net"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import { codeOf } from "../error-code.ts"
import { PostgresControlError, type PostgresEndpoint } from "./PostgresControl.ts"
import { controlDatabase, controlUser } from "./settings.ts"

/** An answer is a few hundred bytes, and so is what comes before it. */
const longestAnswer = 256 * 1024

/** Undefined: the answer has no row, or null. Whoever asks bounds the time; the statement itself is ended a moment later. */
export const askOnce = (
  { socketDir, port }: PostgresEndpoint,
  statement: string,
  statementTimeoutMs: number
): Effect.Effect<string | undefined, PostgresControlError> =>
  Effect.callback((resume) => {
    const socket = net.connect(path.join(socketDir, `.s.PGSQL.${port}`))
    const fail = (message: string, code: string, cause?: unknown) => {
      socket.destroy()
      resume(Effect.fail(new PostgresControlError({ message, code, cause })))
    }
    let rest: Buffer = Buffer.alloc(0)
    let answer: string | undefined
    let greeted = false
    socket.on("error", (cause) =>
      fail(`The database server cannot be reached: ${cause.message}`, codeOf(cause) ?? "unknown", cause)
    )
    socket.on("close", () => fail("The database server closed the connection", "unknown"))
    socket.on("data", (chunk) => {
      rest = Buffer.concat([rest, typeof chunk === "string" ? Buffer.from(chunk) : chunk])
      if (rest.length > longestAnswer) return fail("The database server said too much", "unknown")
      while (rest.length >= 5 && rest.length >= 1 + rest.readInt32BE(1)) {
        const length = rest.readInt32BE(1)
        if (length < 4) return fail("The database server speaks another protocol", "unknown")
        const kind = String.fromCharCode(rest[0] ?? 0)
        const body = rest.subarray(5, 1 + length)
        rest = rest.subarray(1 + length)
        if (kind === "R" && body.readInt32BE(0) !== 0)
          return fail("The database server asks for a password", "28000")
        if (kind === "E")
          return fail(`The database server refused: ${errorField(body, "M")}`, errorField(body, "C"))
        if (kind === "D") answer = firstColumn(body)
        if (kind !== "Z") continue
        // Ready for the question, and then for another one, which is not put.
        if (!greeted) {
          greeted = true
          continue
        }
        socket.removeAllListeners("close")
        socket.destroy()
        return resume(Effect.succeed(answer))
      }
    })
    socket.write(
      Buffer.concat([startup(statementTimeoutMs), message("Q", `${statement}\0`), message("X", "")])
    )
    return Effect.sync(() => {
      socket.destroy()
    })
  })

const message = (kind: string, text: string): Buffer => {
  const body = Buffer.from(text)
  const head = Buffer.alloc(5)
  head.write(kind, "latin1")
  head.writeInt32BE(4 + body.length, 1)
  return Buffer.concat([head, body])
}

const startup = (statementTimeoutMs: number): Buffer => {
  const parameters = {
    user: controlUser,
    database: controlDatabase,
    application_name: "svc",
    statement_timeout: String(statementTimeoutMs),
    // Named last, the schema of temporary objects is not searched first.
    search_path: "pg_catalog, pg_temp"
  }
  const text = Object.entries(parameters).flat()
  const body = Buffer.from(`${text.join("\0")}\0\0`)
  const head = Buffer.alloc(8)
  head.writeInt32BE(8 + body.length)
  head.writeInt32BE(196_608, 4)
  return Buffer.concat([head, body])
}

const firstColumn = (row: Buffer): string | undefined => {
  const length = row.length < 6 || row.readInt16BE(0) < 1 ? -1 : row.readInt32BE(2)
  return length < 0 ? undefined : row.toString("utf8", 6, 6 + length)
}

const errorField = (body: Buffer, name: string): string =>
  body
    .toString("utf8")
    .split("\0")
    .find((one) => one.startsWith(name))
    ?.slice(1) ?? "unknown"
