/** Asking an instance whether it can take requests: over HTTP, because a port that is open says nothing of an app. */
import * as http from "node:http"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"

interface Fault {
  /** For people. */
  readonly message: string
  readonly listens: boolean
}

interface Target {
  readonly address: string
  readonly port: number
}

interface Check {
  readonly path: string
  readonly timeoutSeconds: number
}

/**
 * Null: it can. Otherwise why not, for people. `patienceMs`: for so long it is asked again while nothing listens, which
 * costs less than looking at the whole app again.
 */
export const healthOf = (target: Target, check: Check, patienceMs = 0): Effect.Effect<string | null> =>
  ask(target, check).pipe(
    Effect.retry({
      while: ({ listens }) => !listens,
      schedule: Schedule.spaced("20 millis").pipe(Schedule.upTo({ duration: patienceMs }))
    }),
    Effect.match({ onFailure: ({ message }) => message, onSuccess: () => null })
  )

const ask = ({ address, port }: Target, check: Check): Effect.Effect<void, Fault> =>
  Effect.callback<void, Fault>((resume) => {
    const request = http.get({
      host: address,
      port,
      path: check.path,
      agent: false,
      headers: { "user-agent": "svc-health-check", connection: "close" },
      timeout: check.timeoutSeconds * 1_000
    })
    const end = (answer: Effect.Effect<void, Fault>) => {
      resume(answer)
      request.destroy()
    }
    const fail = (message: string, listens = true) => end(Effect.fail({ message, listens }))
    request.once("response", ({ statusCode = 0 }) =>
      statusCode < 400 ? end(Effect.void) : fail(`${check.path} answers ${statusCode}`)
    )
    request.once("timeout", () => fail(`${check.path} does not answer within ${check.timeoutSeconds} s`))
    request.on("error", (error: NodeJS.ErrnoException) =>
      error.code === "ECONNREFUSED"
        ? fail(
            `Nothing listens on port ${port}; an app has to listen on the port that PORT names, on all addresses`,
            false
          )
        : fail(`${check.path} cannot be asked for: ${error.code ?? error.message}`)
    )
    return Effect.sync(() => void request.destroy())
  }).pipe(
    // An answer that begins and never ends its headers is none.
    Effect.timeoutOrElse({
      duration: (check.timeoutSeconds + 1) * 1_000,
      orElse: () =>
        Effect.fail({
          message: `${check.path} does not answer within ${check.timeoutSeconds} s`,
          listens: true
        })
    })
  )
