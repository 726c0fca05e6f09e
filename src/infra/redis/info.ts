/**
 * What a managed cache server tells of itself (INFO), over its Unix socket as the control user: a connection and one round
 * trip. It is for a look that is taken at every server many times an hour; a library's client takes three times the
 * processor time. (Redis documentation, "Redis serialization protocol specification", version 2.)
 */
import * as net from "node:net"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { codeOf } from "../error-code.ts"
import { infoLines, RedisControlError, type RedisEndpoint } from "./RedisControl.ts"
import { controlUser } from "./settings.ts"

/** The sections are a few thousand bytes together. */
const longestAnswer = 256 * 1024

const command = (...words: ReadonlyArray<string>) =>
  `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("")}`

/** Whoever asks bounds the time. */
export const readInfo = (
  { socket: path, password }: RedisEndpoint,
  sections: ReadonlyArray<string>
): Effect.Effect<ReadonlyMap<string, string>, RedisControlError> =>
  Effect.callback((resume) => {
    const socket = net.connect(path)
    socket.setEncoding("utf8")
    const fail = (reason: RedisControlError["reason"], message: string, cause?: unknown) => {
      socket.destroy()
      resume(Effect.fail(new RedisControlError({ reason, message, cause })))
    }
    let text = ""
    socket.on("error", (cause) =>
      fail(
        ["ENOENT", "ECONNREFUSED"].includes(codeOf(cause) ?? "") ? "closed" : "silent",
        "The cache server cannot be reached",
        cause
      )
    )
    socket.on("close", () => fail("failed", "The cache server closed the connection"))
    socket.on("data", (chunk) => {
      text += chunk
      if (text.length > longestAnswer) return fail("failed", "The cache server said too much")
      const refusal = /^-(\S+)[^\r]*\r\n/m.exec(text)?.[1]
      if (refusal !== undefined)
        return refusal === "BUSY"
          ? fail("busy", "A script keeps the server busy")
          : fail(
              /^(WRONGPASS|NOPERM|NOAUTH)$/.test(refusal) ? "refused" : "failed",
              "The cache server refused"
            )
      const begin = /^\+OK\r\n\$(\d+)\r\n/.exec(text)
      if (begin === null) return
      const body = text.slice(begin[0].length)
      // All of it is ASCII, and ends with a line that is empty.
      if (body.length < Number(begin[1]) + 2) return
      socket.removeAllListeners("close")
      socket.destroy()
      resume(Effect.succeed(new Map(infoLines(body))))
    })
    socket.write(command("AUTH", controlUser, Redacted.value(password)) + command("INFO", ...sections))
    return Effect.sync(() => {
      socket.destroy()
    })
  })
