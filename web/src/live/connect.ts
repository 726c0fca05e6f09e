/** A tab's end of the stream: through the shared worker, or by itself where the browser has none. */

import { follow } from "./follow.ts"
import type { Ask, Tell } from "./protocol.ts"
import workerUrl from "./worker.ts?sharedworker&url"

const name = "svc"
/** No other string of ours becomes the address of a script. */
const scripts = globalThis.trustedTypes?.createPolicy(name, {
  createScriptURL: (url) => {
    if (url !== workerUrl) throw new TypeError("not a script of ours")
    return url
  }
})

export interface Stream {
  readonly retry: () => void
  readonly close: () => void
}

export const connect = (url: string, reader: string, tell: (message: Tell) => void): Stream => {
  if (!("SharedWorker" in globalThis) || navigator.locks === undefined) {
    const following = follow(url, tell)
    return { retry: following.retry, close: following.stop }
  }
  const lock = `svc-${crypto.randomUUID()}`
  let release = () => {}
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
  const { port } = new SharedWorker(scripts?.createScriptURL(workerUrl) ?? workerUrl, {
    name,
    type: "module"
  })
  const ask = (message: Ask) => port.postMessage(message)
  let closed = false
  port.addEventListener("message", ({ data }: MessageEvent<Tell>) => {
    if (!closed) tell(data)
  })
  port.start()
  // The worker waits for the lock, so it has to be ours first.
  void navigator.locks.request(lock, () => {
    if (!closed) ask({ type: "watch", url, reader, lock })
    return held
  })
  return {
    retry: () => ask({ type: "retry" }),
    close: () => {
      closed = true
      release()
      port.close()
    }
  }
}
