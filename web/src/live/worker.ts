/** The worker that tabs share. A tab that is gone gives its lock back, however it ended. */
import type { Ask } from "./protocol.ts"
import { makeSharing } from "./shared.ts"

const sharing = makeSharing()

const serve = (port: MessagePort) => {
  let joined: ReturnType<typeof sharing.join> | undefined
  port.addEventListener("message", ({ data }: MessageEvent<Ask>) => {
    if (data.type === "retry") return joined?.retry()
    joined?.leave()
    const now = sharing.join(port, data)
    joined = now
    void navigator.locks.request(data.lock, () => now.leave())
  })
  port.start()
}

// The program is checked with the types of pages; this event is one of shared workers.
addEventListener("connect", (event) => {
  if (event instanceof MessageEvent) for (const port of event.ports) serve(port)
})
