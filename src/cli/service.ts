/** What the commands of single services share: connection strings, and the end of a deletion. */
import * as Effect from "effect/Effect"
import { json, out, say } from "./output.ts"
import { detachable, type Waiting, waitFor } from "./wait.ts"

interface Connection {
  readonly status?: string
  readonly connectionString: string | null
  readonly caCertificateUrl: string
}

/** The connection string alone is data, so that a program can take it from a pipe. */
export const showConnection = Effect.fnUntraced(function* (
  made: Connection,
  asJson: boolean,
  another: string
) {
  if (asJson) return yield* json(made)
  if (made.connectionString === null) {
    return yield* say(
      `${made.status === "ready" ? "Ready." : "It is on its way."} Its password was not shown; this makes one: ${another}`
    )
  }
  yield* say(`Shown this once; clients verify the server with the certificate at ${made.caCertificateUrl}`)
  yield* out(made.connectionString)
})

export const deleted = Effect.fnUntraced(function* (
  uid: string,
  address: string,
  flags: Waiting & { readonly json: boolean }
) {
  if (flags.wait) {
    yield* detachable(waitFor(new Map([[uid, { address, generation: null }]]), flags.timeout))
  }
  if (flags.json) return yield* json({ uid, address, deleted: flags.wait })
  yield* say(
    flags.wait ? `${address} and its data are gone` : `The deletion of ${address} is stored and goes on`
  )
})
