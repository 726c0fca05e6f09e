/** What a program prints, and what it is given to read, over the one connection that the engine has for both. */
import { type Duplex, PassThrough } from "node:stream"

/** Bytes that are taken from the engine before they are read here. */
const held = 1024 * 1024

/**
 * What comes over the connection. The engine closes it once the program has ended, also when part of `input` was never
 * read, and the kernel then tells an error for what is still to be written. That is no end of what was printed: all of
 * it has come by then, unless there was no room for it here. (Podman itself may have dropped the end of it.)
 */
export const attached = (connection: Duplex, input: Uint8Array | undefined): PassThrough => {
  const printed = new PassThrough({ highWaterMark: held })
  connection.on("data", (piece: Buffer) => {
    if (!printed.write(piece)) connection.pause()
  })
  printed.on("drain", () => connection.resume())
  connection.once("end", () => printed.end())
  connection.once("close", () => printed.end())
  connection.on("error", (error) => {
    if (input !== undefined && closedBy(error) && !connection.isPaused()) printed.end()
    else printed.destroy(error)
  })
  printed.once("close", () => connection.destroy())
  // Whoever reads is told when they come to it, which may be later.
  printed.on("error", () => undefined)
  if (input !== undefined) connection.end(input)
  return printed
}

const closedBy = (error: Error): boolean =>
  "code" in error && (error.code === "EPIPE" || error.code === "ECONNRESET")
