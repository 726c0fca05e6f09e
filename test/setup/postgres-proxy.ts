/** A way to Postgres that loses a statement before it arrives, or its answer after it was carried out. */
import * as net from "node:net"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"

export interface Losing {
  /** A connection ends when it is to carry a statement with this text; `quietly`: it stays, and nothing comes. */
  readonly statement: string
  readonly lose: "request" | "answer" | "quietly"
  /** So often. */
  times: number
}

/** Answers the URL of the way, and what says what to lose; all connections end while `away`. */
export const postgresProxy = Effect.fnUntraced(function* (url: Redacted.Redacted) {
  const target = new URL(Redacted.value(url))
  const state: { losing: Losing | undefined; away: boolean } = { losing: undefined, away: false }
  const open = new Set<net.Socket>()
  const server = net.createServer((client) => {
    const upstream = net.connect({ host: target.hostname, port: Number(target.port || 5432) })
    const both = [client, upstream]
    for (const socket of both) open.add(socket)
    const end = () => {
      for (const socket of both) {
        socket.destroy()
        open.delete(socket)
      }
    }
    if (state.away) return end()
    let waiting = false
    client.on("data", (chunk) => {
      const { losing } = state
      if (losing !== undefined && losing.times > 0 && chunk.includes(losing.statement)) {
        losing.times -= 1
        if (losing.lose === "request") return end()
        if (losing.lose === "quietly") return
        waiting = true
      }
      upstream.write(chunk)
    })
    upstream.on("data", (chunk) => {
      // CommandComplete of the statement: it has taken effect.
      if (waiting && chunk.includes("SELECT 1\0")) return end()
      client.write(chunk)
    })
    for (const socket of both) socket.on("close", end).on("error", end)
  })
  yield* Effect.acquireRelease(
    Effect.promise(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", () => resolve()))),
    () =>
      Effect.promise(
        () =>
          new Promise<void>((resolve) => {
            server.close(() => resolve())
            for (const socket of open) socket.destroy()
          })
      )
  )
  const address = server.address()
  const through = new URL(target)
  through.hostname = "127.0.0.1"
  through.port = String(typeof address === "object" && address !== null ? address.port : 0)
  return {
    url: Redacted.make(through.href),
    state,
    goAway: Effect.sync(() => {
      state.away = true
      for (const socket of open) socket.destroy()
    }),
    comeBack: Effect.sync(() => {
      state.away = false
    })
  }
})
