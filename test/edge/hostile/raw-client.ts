/** Clients that send what no library would: bytes over TLS, and frames of HTTP/2 with fields as they are given. */
import * as tls from "node:tls"
import type { RunningProxy } from "./proxy.ts"

type Door = Pick<RunningProxy, "httpsPort" | "caPem">

/** After the last byte that came, and before the first one. */
const [quietMs, mostMs] = [200, 1_500]

/** Sends this in one piece, and answers what came until the other side closed or was silent for a while. */
export const sendBytes = (door: Door, servername: string, text: string, silenceMs = quietMs) =>
  exchange(door, servername, "http/1.1", Buffer.from(text, "latin1"), silenceMs)

const exchange = (door: Door, servername: string, protocol: string, bytes: Buffer, silenceMs: number) =>
  new Promise<Buffer>((resolve, reject) => {
    const socket = tls.connect({
      host: "127.0.0.1",
      port: door.httpsPort,
      ca: door.caPem,
      servername,
      ALPNProtocols: [protocol]
    })
    const chunks: Array<Buffer> = []
    let timer: NodeJS.Timeout | undefined
    const done = () => {
      clearTimeout(timer)
      socket.destroy()
      resolve(Buffer.concat(chunks))
    }
    const wait = (ms: number) => {
      clearTimeout(timer)
      timer = setTimeout(done, ms)
    }
    socket.once("secureConnect", () => {
      socket.write(bytes)
      wait(Math.max(silenceMs, mostMs))
    })
    socket.on("data", (data: Buffer) => {
      chunks.push(data)
      wait(silenceMs)
    })
    socket.once("error", (error) => (chunks.length > 0 ? done() : reject(error)))
    socket.once("close", done)
  })

/** The statuses of answers of HTTP/1.1. */
export const statusesOf = (answer: Buffer): ReadonlyArray<number> =>
  [...answer.toString("latin1").matchAll(/HTTP\/1\.[01] (\d{3}) /g)].map(([, status]) => Number(status))

export type Field = readonly [name: string, value: string]

/** RFC 7541, 6.2.2: literal fields without indexing, neither compressed nor known. */
const block = (fields: ReadonlyArray<Field>): Buffer =>
  Buffer.concat(fields.flatMap(([name, value]) => [Buffer.from([0]), literal(name), literal(value)]))
const literal = (text: string): Buffer => {
  const bytes = Buffer.from(text, "latin1")
  if (bytes.length < 127) return Buffer.concat([Buffer.from([bytes.length]), bytes])
  const length: Array<number> = [127]
  let rest = bytes.length - 127
  for (; rest >= 128; rest = rest >> 7) length.push((rest & 127) | 128)
  return Buffer.concat([Buffer.from([...length, rest]), bytes])
}
const frame = (type: number, flags: number, stream: number, payload: Buffer): Buffer => {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head[3] = type
  head[4] = flags
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}
const preface = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  frame(4, 0, 0, Buffer.alloc(0))
])

/** What became of a request: its status, or that the stream or the connection was ended. */
export type Fate = number | "reset" | "goaway" | "nothing"

/** One request in HTTP/2, with these fields in this order and this body; trailers if there are any. */
export const sendFrames = async (
  door: Door,
  servername: string,
  fields: ReadonlyArray<Field>,
  { body, trailers }: { readonly body?: string; readonly trailers?: ReadonlyArray<Field> } = {}
): Promise<Fate> => {
  const frames = [preface, frame(1, 4 | (body === undefined ? 1 : 0), 1, block(fields))]
  if (body !== undefined)
    frames.push(frame(0, trailers === undefined ? 1 : 0, 1, Buffer.from(body, "latin1")))
  if (trailers !== undefined) frames.push(frame(1, 5, 1, block(trailers)))
  const answer = await exchange(door, servername, "h2", Buffer.concat(frames), quietMs)
  return fateIn(answer)
}

const fateIn = (bytes: Buffer): Fate => {
  let fate: Fate = "nothing"
  for (let at = 0; at + 9 <= bytes.length; ) {
    const length = bytes.readUIntBE(at, 3)
    const type = bytes[at + 3]
    const payload = bytes.subarray(at + 9, at + 9 + length)
    if (type === 1) return statusIn(payload)
    if (type === 3) fate = "reset"
    if (type === 7 && fate === "nothing") fate = "goaway"
    at += 9 + length
  }
  return fate
}

/** Indexed fields 8 to 14 of the static table, or a literal value of field 8 (RFC 7541, appendix A). */
const statusIn = (payload: Buffer): number => {
  const [first = 0] = payload
  if (first >= 0x88 && first <= 0x8e) return [200, 204, 206, 304, 400, 404, 500][first - 0x88] ?? 0
  return Number(payload.subarray(2, 5).toString("latin1"))
}
