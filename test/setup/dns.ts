/** A name server on loopback that says what a test tells it to, over UDP (RFC 1035). */
import * as dgram from "node:dgram"
import * as Effect from "effect/Effect"

export interface Entry {
  readonly cname?: string
  readonly a?: ReadonlyArray<string>
  readonly txt?: ReadonlyArray<string>
  /** The answer is this error: 2 SERVFAIL, 5 REFUSED. */
  readonly rcode?: number
  /** There is no answer. */
  readonly silent?: boolean
}

export interface NameServer {
  /** As `SVC_DNS_SERVERS` takes it. */
  readonly address: string
  /** What it knows, by name in lower case. Other names do not exist. */
  readonly zone: Map<string, Entry>
  /** How many questions came. */
  readonly asked: () => number
}

const types = { 1: "a", 5: "cname", 16: "txt" } as const

const nameBytes = (name: string): Buffer =>
  Buffer.concat([
    ...name.split(".").map((label) => Buffer.from([label.length, ...Buffer.from(label)])),
    Buffer.from([0])
  ])

const record = (type: number, data: Buffer): Buffer => {
  const head = Buffer.alloc(12)
  // The name of the question, class IN, a time to live of none.
  head.writeUInt16BE(0xc00c, 0)
  head.writeUInt16BE(type, 2)
  head.writeUInt16BE(1, 4)
  head.writeUInt16BE(data.length, 10)
  return Buffer.concat([head, data])
}

const answersTo = (type: number, entry: Entry): ReadonlyArray<Buffer> => {
  const kind = Object.entries(types).find(([code]) => Number(code) === type)?.[1]
  if (kind === "a")
    return (entry.a ?? []).map((address) => record(1, Buffer.from(address.split(".").map(Number))))
  if (kind === "cname") return entry.cname === undefined ? [] : [record(5, nameBytes(entry.cname))]
  if (kind === "txt")
    return (entry.txt ?? []).map((text) => record(16, Buffer.from([text.length, ...Buffer.from(text)])))
  return []
}

const reply = (question: Buffer, zone: ReadonlyMap<string, Entry>): Buffer | undefined => {
  const labels: Array<string> = []
  let at = 12
  for (let length = question.readUInt8(at); length > 0; length = question.readUInt8(at)) {
    labels.push(question.subarray(at + 1, at + 1 + length).toString("latin1"))
    at += 1 + length
  }
  const end = at + 5
  const entry = zone.get(labels.join(".").toLowerCase())
  if (entry?.silent === true) return undefined
  const answers =
    entry === undefined || entry.rcode !== undefined ? [] : answersTo(question.readUInt16BE(at + 1), entry)
  const head = Buffer.alloc(12)
  question.copy(head, 0, 0, 2)
  head.writeUInt16BE(0x8180 | (entry?.rcode ?? (entry === undefined ? 3 : 0)), 2)
  head.writeUInt16BE(1, 4)
  head.writeUInt16BE(answers.length, 6)
  return Buffer.concat([head, question.subarray(12, end), ...answers])
}

export const nameServer = Effect.acquireRelease(
  Effect.promise(async () => {
    const zone = new Map<string, Entry>()
    const socket = dgram.createSocket("udp4")
    let asked = 0
    socket.on("message", (question, { port, address }) => {
      asked++
      const answer = reply(question, zone)
      if (answer !== undefined) socket.send(answer, port, address)
    })
    await new Promise<void>((resolve) => socket.bind(0, "127.0.0.1", resolve))
    const server: NameServer = { address: `127.0.0.1:${socket.address().port}`, zone, asked: () => asked }
    return { server, socket }
  }),
  ({ socket }) => Effect.sync(() => socket.close())
).pipe(Effect.map(({ server }) => server))
