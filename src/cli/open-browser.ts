/** Opens an address in the user's browser. No shell is involved: what a server names is never a command. */
import { spawn } from "node:child_process"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { helperEnvironment } from "#src/infra/host/helper-environment.ts"

const program = process.platform === "darwin" ? "open" : "xdg-open"

/** Whether a program took the address; it is not waited for. */
type OpenBrowser = (url: URL) => Effect.Effect<boolean>

const inUsersBrowser: OpenBrowser = (url) =>
  Effect.callback<boolean>((resume) => {
    // An option would begin with a dash.
    if (url.protocol !== "http:" && url.protocol !== "https:") return resume(Effect.succeed(false))
    const child = spawn(program, [url.href], { stdio: "ignore", detached: true, env: helperEnvironment() })
    child.once("error", () => resume(Effect.succeed(false)))
    child.once("spawn", () => resume(Effect.succeed(true)))
    child.unref()
  })

export const OpenBrowser = Context.Reference<OpenBrowser>("svc/cli/OpenBrowser", {
  defaultValue: () => inUsersBrowser
})
