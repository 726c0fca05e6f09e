/** Asking an instance whether it can take requests: over HTTP, because a port that is open says nothing of an app. */
import * as http from "node:http"
import * as Effect from "effect/Effect"

/** Null: it can. Otherwise why not, for people. */
export const healthOf = (
  { address, port }: { readonly address: string; readonly port: number },
  check: { readonly path: string; readonly timeoutSeconds: number }
): Effect.Effect<string | null> =>
  Effect.callback<string | null>((resume) => {
    const request = http.get({
      host: address,
      port,
      path: check.path,
      agent: false,
      headers: { "user-agent": "svc-health-check", connection: "close" },
      timeout: check.timeoutSeconds * 1_000
    })
    const end = (fault: string | null) => {
      resume(Effect.succeed(fault))
      request.destroy()
    }
    request.once("response", ({ statusCode = 0 }) =>
      end(statusCode < 400 ? null : `${check.path} answers ${statusCode}`)
    )
    request.once("timeout", () => end(`${check.path} does not answer within ${check.timeoutSeconds} s`))
    request.on("error", (error: NodeJS.ErrnoException) =>
      end(
        error.code === "ECONNREFUSED"
          ? `Nothing listens on port ${port}; an app has to listen on the port that PORT names, on all addresses`
          : `${check.path} cannot be asked for: ${error.code ?? error.message}`
      )
    )
    return Effect.sync(() => void request.destroy())
  }).pipe(
    // An answer that begins and never ends its headers is none.
    Effect.timeoutOrElse({
      duration: (check.timeoutSeconds + 1) * 1_000,
      orElse: () => Effect.succeed(`${check.path} does not answer within ${check.timeoutSeconds} s`)
    })
  )
