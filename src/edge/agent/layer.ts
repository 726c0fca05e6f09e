/** The edge on this machine: HAProxy, and the agent beside it. Nothing of it keeps the rest of the process from starting. */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { supervise } from "#src/engine/supervise.ts"
import { haproxyConfig } from "../haproxy-config.ts"
import { receive } from "../requests/receiver.ts"
import { settings } from "../settings.ts"
import { ticketKey } from "../ticket-key.ts"
import { makeDispatch } from "./dispatch.ts"
import { makeFolder } from "./folder.ts"
import { makeForwarder } from "./forward.ts"
import { listen } from "./listener.ts"
import { runNode } from "./Node.ts"
import { Routes } from "./Routes.ts"
import { agentPort, logPort } from "./start-from-files.ts"

const run = Effect.gen(function* () {
  const values = yield* settings
  const folder = yield* makeFolder
  const { id, agentKey } = yield* folder.identity
  const port = yield* agentPort
  const requestsPort = yield* logPort
  const { internalSocket, secondSocket, place } = folder
  const config = haproxyConfig({
    ...values,
    publicHttpsPort: values.publicHttpsPort ?? values.httpsPort,
    folder: place.dir,
    controlSocket: place.socket,
    internalSocket,
    secondSocket,
    agentPort: port,
    logPort: requestsPort,
    agentKey,
    ticketKey: Redacted.value(yield* ticketKey)
  })
  const dispatch = yield* makeDispatch
  yield* listen({ port, key: agentKey, dispatch, forwarder: makeForwarder(internalSocket) })
  const log = Effect.scoped(Effect.andThen(receive(requestsPort), Effect.never))
  yield* Effect.forkScoped(supervise("take the log of requests", log))
  yield* runNode({ id, folder, config })
  return yield* Effect.never
})

export const layer = Layer.effectDiscard(
  Effect.forkScoped(supervise("serve the apps' addresses", Effect.scoped(run)))
).pipe(Layer.provide(Routes.layer))
