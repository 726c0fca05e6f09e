/** Requests as fast as a server answers them, and the processes that answer. */
import type { ChildProcess } from "node:child_process"
import * as http from "node:http"

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

export interface Load {
  readonly rate: number
  readonly p99: number
}

/** Closed loop: 16 connections, each asks again when it was answered. `warmUpMs` come before and do not count. */
export const load = async (
  port: number,
  request: (n: number) => { method: string; path: string; body?: string },
  headers: Record<string, string>,
  seconds: number,
  warmUpMs = 1_500
): Promise<Load> => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 16 })
  const times: Array<number> = []
  let n = 0
  const one = () =>
    new Promise<void>((resolve, reject) => {
      const { method, path: target, body } = request(n++)
      const startedAt = performance.now()
      const sent = http.request(
        {
          host: "127.0.0.1",
          port,
          agent,
          method,
          path: target,
          headers: {
            ...headers,
            ...(body === undefined
              ? {}
              : { "content-type": "application/json", "content-length": Buffer.byteLength(body) })
          }
        },
        (response) => {
          response.resume()
          response.once("end", () => {
            if ((response.statusCode ?? 500) >= 400)
              return reject(new Error(`status ${response.statusCode} for ${method} ${target}`))
            times.push(performance.now() - startedAt)
            resolve()
          })
        }
      )
      sent.once("error", reject)
      sent.end(body)
    })
  const run = async (until: number) => {
    while (performance.now() < until) await one()
  }
  const lanes = async (ms: number) => {
    const until = performance.now() + ms
    await Promise.all(Array.from({ length: 16 }, () => run(until)))
  }
  await lanes(warmUpMs)
  times.length = 0
  const startedAt = performance.now()
  await lanes(seconds * 1000)
  const elapsed = (performance.now() - startedAt) / 1000
  agent.destroy()
  times.sort((a, b) => a - b)
  return { rate: times.length / elapsed, p99: times[Math.floor(times.length * 0.99)] ?? 0 }
}

export const serving = async (port: number, target: string, child: ChildProcess) => {
  for (let i = 0; i < 2_400; i++) {
    if (child.exitCode !== null) throw new Error(`a server ended with ${child.exitCode}`)
    const ok = await fetch(`http://127.0.0.1:${port}${target}`).then(
      (response) => response.status < 500,
      () => false
    )
    if (ok) return
    await sleep(25)
  }
  throw new Error("a server does not answer")
}

export const ended = (child: ChildProcess) =>
  new Promise<void>((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve()
    child.once("exit", () => resolve())
    child.kill("SIGTERM")
  })
