/**
 * Talks to HAProxy through its control socket (management guide of HAProxy 2.6, section 9.3 "Unix Socket commands").
 * What is changed here is in force at once, breaks no connection, and is forgotten when HAProxy ends: the files that it
 * starts from are somebody else's matter. Each connection carries one line, or one command with a payload, and closes.
 */
import { createHash } from "node:crypto"
import * as net from "node:net"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import { codeOf } from "../error-code.ts"
import { HaproxyError } from "./errors.ts"

const answerMs = 10_000
/** A map of 100,000 lines is a tenth of it. */
const longestAnswer = 64 << 20
/** A line or a payload has to fit into one buffer of HAProxy (`tune.bufsize`, 16 KiB), or is dropped without a word. */
const longestLine = 8_000

const reasons: Readonly<Record<string, HaproxyError["reason"]>> = {
  ENOENT: "Closed",
  ECONNREFUSED: "Closed",
  ECONNRESET: "Cut",
  EPIPE: "Cut",
  // More connections wait to be taken than there is room for.
  EAGAIN: "Cut"
}

/** A process that is ending, or has much to do, takes no connection for a moment. */
const whileBusy = {
  while: ({ reason }: HaproxyError) => reason === "Cut",
  schedule: Schedule.spaced("50 millis"),
  times: 20
}

/** What is answered to one line of commands. */
export const ask = (socket: string, line: string): Effect.Effect<string, HaproxyError> =>
  Effect.callback<string, HaproxyError>((resume) => {
    const chunks: Array<Buffer> = []
    let length = 0
    const connection = net.connect(socket)
    const fail = (reason: HaproxyError["reason"], message: string, cause?: unknown) => {
      connection.destroy()
      resume(Effect.fail(new HaproxyError({ reason, message, ...(cause === undefined ? {} : { cause }) })))
    }
    connection.setTimeout(answerMs, () => fail("Silent", "HAProxy's control socket does not answer"))
    connection.on("data", (chunk: Buffer) => {
      chunks.push(chunk)
      length += chunk.length
      if (length > longestAnswer) fail("Silent", "HAProxy's control socket answers without end")
    })
    connection.once("end", () => {
      // Every answer has at least an empty line.
      if (length === 0) fail("Cut", "HAProxy's control socket was closed before an answer")
      else resume(Effect.succeed(Buffer.concat(chunks).toString()))
    })
    connection.once("error", (cause) => {
      const reason = reasons[codeOf(cause) ?? ""] ?? "Failed"
      fail(reason, `HAProxy's control socket cannot be used: ${cause.message}`, cause)
    })
    connection.write(`${line}\n`)
    return Effect.sync(() => connection.destroy())
  })

/** One command for each change; the answer to one that worked is an empty line. */
const change = Effect.fnUntraced(function* (socket: string, commands: ReadonlyArray<string>) {
  for (const batch of batches(commands, 2)) {
    const answer = yield* ask(socket, batch.join("; "))
    if (answer !== "\n".repeat(batch.length)) return yield* refused(answer)
  }
})

const refused = (answer: string) =>
  new HaproxyError({
    reason: "Refused",
    message: `HAProxy did not take a change: ${answer.trim().slice(0, 300) || "no answer"}`
  })

/** Texts in groups that fit into a buffer, with `gap` characters after each. */
const batches = (texts: ReadonlyArray<string>, gap: number): ReadonlyArray<ReadonlyArray<string>> => {
  const all: Array<Array<string>> = []
  let room = 0
  for (const text of texts) {
    room -= text.length + gap
    if (room < 0) {
      all.push([])
      room = longestLine - text.length - gap
    }
    all.at(-1)?.push(text)
  }
  return all
}

/** Number of the process that serves, and its limit of connections. */
export const readInfo = (socket: string) =>
  Effect.flatMap(Effect.retry(ask(socket, "show info"), whileBusy), (answer) => {
    const pid = Number(/^Pid: (\d+)$/m.exec(answer)?.[1])
    return pid > 1 ? Effect.succeed({ pid }) : Effect.fail(refused(answer))
  })

/** Key and value of each line of a map. */
export const readMap = (socket: string, map: string): Effect.Effect<Map<string, string>, HaproxyError> =>
  Effect.flatMap(ask(socket, `show map ${map}`), (answer) => {
    if (/^Unknown map/.test(answer)) return Effect.fail(refused(answer))
    const lines = answer.split("\n").flatMap((line): ReadonlyArray<[string, string]> => {
      const [, key, value] = /^0x[0-9a-f]+ (\S+) ?(.*)$/.exec(line) ?? []
      return key === undefined ? [] : [[key, value ?? ""]]
    })
    return Effect.succeed(new Map(lines))
  })

export interface MapChanges {
  /** Of keys that are not in the map. */
  readonly add: ReadonlyArray<readonly [key: string, value: string]>
  /** Of keys that are. */
  readonly set: ReadonlyArray<readonly [key: string, value: string]>
  readonly remove: ReadonlyArray<string>
}

/** What turns one map into the other. */
export const mapChanges = (
  from: ReadonlyMap<string, string>,
  to: ReadonlyMap<string, string>
): MapChanges => ({
  add: [...to].filter(([key]) => !from.has(key)),
  set: [...to].filter(([key, value]) => from.has(key) && from.get(key) !== value),
  remove: [...from.keys()].filter((key) => !to.has(key))
})

/** No word of it may end a command or a line. */
const word = /^[A-Za-z0-9._:|*~-]+$/
const checked = (...words: ReadonlyArray<string>): Effect.Effect<void, HaproxyError> => {
  const bad = words.find((one) => !word.test(one))
  return bad === undefined
    ? Effect.void
    : Effect.fail(
        new HaproxyError({ reason: "Refused", message: `HAProxy is not told of ${JSON.stringify(bad)}` })
      )
}

/** Whether a text can be the key or the value of a map's line. */
export const isMapWord = (text: string): boolean => word.test(text)

export const changeMap = Effect.fnUntraced(function* (socket: string, map: string, changes: MapChanges) {
  const { add, set, remove } = changes
  yield* checked(...[...add, ...set].flat(), ...remove)
  const lines = add.map(([key, value]) => `${key} ${value}`)
  for (const batch of batches(lines, 1)) {
    const answer = yield* ask(socket, `add map ${map} <<\n${batch.join("\n")}\n`)
    if (answer !== "\n") return yield* refused(answer)
  }
  yield* change(socket, [
    ...set.map(([key, value]) => `set map ${map} ${key} ${value}`),
    ...remove.map((key) => `del map ${map} ${key}`)
  ])
})

/**
 * Gives up changes of certificates that were begun and not committed, as by a process that was killed in between. Until
 * then HAProxy takes what is meant for another file into that one, and removes nothing.
 */
export const abortCertificates = Effect.fnUntraced(function* (socket: string) {
  const open = (yield* ask(socket, "show ssl cert")).split("\n").filter((line) => line.startsWith("*"))
  for (const line of open) yield* ask(socket, `abort ssl cert ${line.slice(1)}`)
})

/** SHA-1 of the certificate of each file that HAProxy has loaded, in hex. */
export const readCertificates = Effect.fnUntraced(function* (socket: string) {
  const listed = yield* ask(socket, "show ssl cert")
  const files = listed.split("\n").filter((line) => line !== "" && !/^[#*]/.test(line))
  const prints = new Map<string, string>()
  for (const batch of batches(
    files.map((file) => `show ssl cert ${file}`),
    2
  )) {
    const answer = yield* ask(socket, batch.join("; "))
    for (const part of answer.split(/^Filename: /m).slice(1)) {
      const file = part.split("\n", 1)[0] ?? ""
      prints.set(file, /^SHA1 FingerPrint: ([0-9A-F]+)$/im.exec(part)?.[1]?.toLowerCase() ?? "")
    }
  }
  return prints
})

/** Names and files of a list of certificates. */
export const readCertificateList = (socket: string, list: string) =>
  Effect.map(ask(socket, `show ssl crt-list ${list}`), (answer) =>
    answer.split("\n").flatMap((line) => {
      const [file, name] = line.split(" ")
      return file === undefined || file === "" || file.startsWith("#") || name === undefined
        ? []
        : [{ file, name }]
    })
  )

/** A payload ends at an empty line. */
const payload = (text: string) => `<<\n${text.trim().replace(/\n{2,}/g, "\n")}\n`

/**
 * Takes a certificate with its chain and key (PEM) into use for a name of the list, whether the file was known before or
 * not. Connections that are open go on with what they began with.
 */
export const putCertificate = Effect.fnUntraced(function* (
  socket: string,
  list: string,
  certificate: {
    readonly file: string
    readonly name: string
    readonly pem: string
    readonly known: boolean
    readonly listed: boolean
  }
) {
  const { file, name, pem, known, listed } = certificate
  if (!known) yield* expect(socket, `new ssl cert ${file}`, /^New empty certificate store/)
  yield* ask(socket, `set ssl cert ${file} ${payload(pem)}`).pipe(
    Effect.flatMap((answer) =>
      /^Transaction (created|updated) for certificate (\S+)!/.exec(answer)?.[2] === file
        ? expect(socket, `commit ssl cert ${file}`, /Success!/)
        : Effect.fail(refused(answer))
    ),
    Effect.tapError(() => Effect.ignore(abortCertificates(socket))),
    Effect.retry({ times: 1 })
  )
  if (!listed) yield* expect(socket, `add ssl crt-list ${list} ${payload(`${file} ${name}`)}`, /Success!/)
})

/** Connections that are open go on; new ones for the name are refused. */
export const removeCertificate = Effect.fnUntraced(function* (
  socket: string,
  list: string,
  { file, listed }: { readonly file: string; readonly listed: boolean }
) {
  if (listed) yield* expect(socket, `del ssl crt-list ${list} ${file}`, /deleted/)
  const remove = expect(socket, `del ssl cert ${file}`, /deleted/)
  yield* Effect.catch(remove, () => Effect.andThen(abortCertificates(socket), remove))
})

const expect = (socket: string, command: string, wanted: RegExp) =>
  Effect.flatMap(ask(socket, command), (answer) =>
    wanted.test(answer) ? Effect.void : Effect.fail(refused(answer))
  )

/** SHA-1 of the first certificate of a PEM text, in hex; empty when there is none. */
export const fingerprintOf = (pem: string): string => {
  const [, body] = /-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----/.exec(pem) ?? []
  return body === undefined ? "" : createHash("sha1").update(Buffer.from(body, "base64")).digest("hex")
}
