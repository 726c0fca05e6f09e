/** Whether the ports of the edge are free, before HAProxy says so in its own words. */
import * as net from "node:net"
import * as Effect from "effect/Effect"

const problem = (host: string, port: number) =>
  Effect.promise(
    () =>
      new Promise<string | undefined>((resolve) => {
        const probe = net.createServer()
        probe.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
        probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve(undefined)))
      })
  )

/** A sentence that names those that cannot be used, and their settings; undefined: all can. */
export const portsTaken = Effect.fnUntraced(function* (
  host: string,
  ports: ReadonlyArray<readonly [setting: string, port: number]>
) {
  const words: Array<string> = []
  for (const [setting, port] of ports) {
    const code = yield* problem(host, port)
    if (code === "EADDRINUSE")
      words.push(`another program listens on port ${port} of ${host}; choose another one (${setting})`)
    else if (code === "EADDRNOTAVAIL") words.push(`${host} is no address of this machine (SVC_EDGE_HOST)`)
  }
  return words.length === 0 ? undefined : [...new Set(words)].join(", and ")
})
