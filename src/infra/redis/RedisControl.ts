/**
 * Talks to one managed cache server through its Unix socket, as the control user.
 *
 * Connections are short: one for each look or change, with a time limit over everything said on it. A look is
 * one pipelined round trip; changes to users are one transaction.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { appUser, controlUser, referenceUser } from "./settings.ts"

/** Why the server could not be asked. None of them says that a process is or is not there. */
export class RedisControlError extends Schema.TaggedError<RedisControlError>()("RedisControlError", {
  /**
   * `closed`: nothing listens on the socket. `cut`: the connection was taken and ended without an answer. `refused`:
   * the control user is not let in. `busy`: a script runs, and nothing else is answered meanwhile. `silent`: no answer
   * came in time.
   */
  reason: Schema.Literals(["closed", "cut", "refused", "busy", "silent", "failed"]),
  message: Schema.String,
  cause: Schema.optionalKey(Schema.Defect())
}) {}

export interface RedisEndpoint {
  readonly socket: string
  readonly password: Redacted.Redacted
}

export interface LiveUser {
  readonly flags: ReadonlyArray<string>
  /** SHA-256 of each password, in hex. */
  readonly passwords: ReadonlyArray<string>
  readonly commands: string
  readonly keys: string
  readonly channels: string
  readonly selectors: ReadonlyArray<unknown>
}

export interface LiveServer {
  readonly processId: number
  /** Drawn by the server whenever it starts. */
  readonly runId: string
  /** Program and version, such as `redis 7.0.15`. */
  readonly version: string
  /** Whether it still reads its data from disk. */
  readonly loading: boolean
  /** Whether it writes its append-only file anew, or is about to. */
  readonly rewriting: boolean
  readonly settings: ReadonlyMap<string, string>
  /** Every user; rules only of those that are compared. */
  readonly users: ReadonlyMap<string, LiveUser | undefined>
}

const comparedUsers = ["default", appUser, controlUser, referenceUser]

/** What the server says of itself, in one round trip. Writes nothing. */
export const readLive = (
  endpoint: RedisEndpoint,
  settings: ReadonlyArray<string>
): Effect.Effect<LiveServer, RedisControlError> =>
  Effect.gen(function* () {
    const reply = yield* ask(endpoint, (send) =>
      Promise.all([
        send("INFO", "server"),
        send("INFO", "persistence"),
        send("ACL", "USERS"),
        send("CONFIG", "GET", ...settings),
        Promise.all(comparedUsers.map((name) => send("ACL", "GETUSER", name)))
      ])
    )
    const [server, persistence, names, pairs, users] = yield* understood(LookReply, reply)
    const facts = new Map([...infoLines(server), ...infoLines(persistence)])
    const program = facts.get("server_name") ?? "redis"
    const read = new Map(comparedUsers.map((name, i) => [name, users[i] ?? null]))
    return {
      processId: Number(facts.get("process_id")),
      runId: facts.get("run_id") ?? "",
      version: `${program} ${facts.get(`${program}_version`) ?? facts.get("redis_version") ?? ""}`,
      loading: facts.get("loading") !== "0",
      rewriting: facts.get("aof_rewrite_in_progress") !== "0" || facts.get("aof_rewrite_scheduled") !== "0",
      settings: new Map(inPairs(pairs)),
      users: new Map(
        names.map((name) => {
          const user = read.get(name) ?? null
          return [name, user === null ? undefined : toUser(user)]
        })
      )
    }
  })

/** Changes settings of the running server, all of them or none. */
export const setSettings = (
  endpoint: RedisEndpoint,
  settings: ReadonlyArray<readonly [string, string]>
): Effect.Effect<void, RedisControlError> =>
  Effect.asVoid(ask(endpoint, (send) => send("CONFIG", "SET", ...settings.flat())))

/**
 * Makes the users what `rules` says and removes all others, in one transaction. With `disconnect`, connections
 * of the application user end in the same instant: nobody goes on with a password that is no longer valid.
 */
export const setUsers = (
  endpoint: RedisEndpoint,
  rules: ReadonlyMap<string, ReadonlyArray<string>>,
  options: { readonly disconnect: boolean; readonly others: ReadonlyArray<string> }
): Effect.Effect<void, RedisControlError> => {
  const commands = [
    ...[...rules].map(([name, rule]) => ["ACL", "SETUSER", name, "reset", ...rule]),
    ...(options.others.length > 0 ? [["ACL", "DELUSER", ...options.others]] : []),
    ...(options.disconnect ? [["CLIENT", "KILL", "USER", appUser]] : [])
  ]
  return Effect.gen(function* () {
    const replies = yield* ask(endpoint, (send) =>
      Promise.all([send("MULTI"), ...commands.map((command) => send(...command)), send("EXEC")])
    )
    const results = yield* understood(TransactionReply, replies.at(-1))
    const failed = results.find((result) => result instanceof Error)
    if (failed !== undefined) return yield* failure(failed)
  })
}

/** Ends the script or function that keeps the server busy. False: it has written, and cannot be ended by itself. */
export const killScript = (endpoint: RedisEndpoint): Effect.Effect<boolean, RedisControlError> =>
  Effect.map(
    ask(endpoint, (send) => Promise.allSettled([send("SCRIPT", "KILL"), send("FUNCTION", "KILL")])),
    // One that has just ended by itself needs no killing.
    (answers) =>
      answers.some((answer) => answer.status === "fulfilled" || /NOTBUSY/.test(String(answer.reason)))
  )

/**
 * Asks a server that a script keeps busy to end without saving: its append-only file is written out, and has nothing of
 * that script. The answer is that the connection ends, so whether it worked is seen by the process.
 */
export const shutDown = (endpoint: RedisEndpoint): Effect.Effect<void> =>
  Effect.ignore(ask(endpoint, (send) => send("SHUTDOWN", "NOSAVE")))

type Send = (...words: ReadonlyArray<string>) => Promise<unknown>

/** How long a server is waited for, in milliseconds. Tests of servers that hang need not wait so long. */
export interface RedisPatience {
  /**
   * Over everything that is said on a connection, from connecting on. Longer than a server that a script keeps busy
   * takes to say so (`busy-reply-threshold`); and this process may stand still for a moment itself, on a machine that
   * is busy.
   */
  readonly answerMs: number
  /** For its end: it has to write what is left of its append-only file before. */
  readonly stopMs: number
  /** Until it listens, which takes milliseconds: this is for machines that are busy. */
  readonly startMs: number
}

export const RedisPatience = Context.Reference<RedisPatience>("svc/infra/RedisPatience", {
  defaultValue: () => ({ answerMs: 8_000, stopMs: 10_000, startMs: 10_000 })
})

/**
 * What connections are copies of. It is never connected itself: `createClient` makes a class with a method for each command
 * whenever it is given other options than the last time, which takes longer than all that is said on a connection.
 */
const makeModel = async () => {
  const { createClient } = await import("@redis/client")
  return createClient({
    RESP: 2,
    disableClientInfo: true,
    disableOfflineQueue: false,
    maintNotifications: "disabled"
  })
}
let model: ReturnType<typeof makeModel> | undefined

/** Opens a connection, says what `body` says and closes it. The client is loaded on first use: it is large. */
const ask = <A>(
  { socket, password }: RedisEndpoint,
  body: (send: Send) => Promise<A>
): Effect.Effect<A, RedisControlError> =>
  Effect.acquireUseRelease(
    Effect.promise(async () => {
      model ??= makeModel()
      const client = (await model).duplicate({
        username: controlUser,
        password: Redacted.value(password),
        socket: { path: socket, tls: false, reconnectStrategy: false, connectTimeout: 5_000 }
      })
      // Failures are answered by the calls; without a listener the emitter would end the process.
      client.on("error", () => undefined)
      return client
    }),
    (client) =>
      Effect.gen(function* () {
        const { answerMs } = yield* RedisPatience
        return yield* Effect.tryPromise({
          try: async () => {
            await client.connect()
            return await body((...words) => client.sendCommand(words))
          },
          catch: failure
        }).pipe(
          Effect.timeoutOrElse({
            duration: answerMs,
            orElse: () =>
              Effect.fail(
                new RedisControlError({
                  reason: "silent",
                  message: `The server did not answer within ${answerMs / 1000} seconds`
                })
              )
          })
        )
      }),
    (client) =>
      Effect.sync(() => {
        if (client.isOpen) client.destroy()
      })
  )

/** The server's own words name commands and settings; passwords are sent as digests or in AUTH, and not quoted. */
const failure = (cause: unknown): RedisControlError => {
  const text = cause instanceof Error ? cause.message : String(cause)
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined
  // Nobody takes connections any more, and no more fit into the queue.
  if (code === "EAGAIN")
    return new RedisControlError({
      reason: "silent",
      message: "The server takes no connections",
      cause
    })
  if (code === "ENOENT" || code === "ECONNREFUSED")
    return new RedisControlError({
      reason: "closed",
      message: "Nothing listens on the control socket",
      cause
    })
  // The server took the connection and ended it: it ends itself, or it has no room for another client.
  if (code === "EPIPE" || code === "ECONNRESET" || text === "Socket closed unexpectedly")
    return new RedisControlError({ reason: "cut", message: "The server cut the connection", cause })
  if (/^(WRONGPASS|NOPERM|NOAUTH)/.test(text))
    return new RedisControlError({ reason: "refused", message: "The control user is not let in", cause })
  if (/^BUSY /.test(text))
    return new RedisControlError({ reason: "busy", message: "A script keeps the server busy", cause })
  return new RedisControlError({ reason: "failed", message: `The server answered: ${text}`, cause })
}

const inPairs = (flat: ReadonlyArray<string>): ReadonlyArray<[string, string]> =>
  Array.from({ length: flat.length / 2 }, (_, i): [string, string] => [flat[2 * i]!, flat[2 * i + 1]!])

/** Names and values in an answer of INFO. */
export const infoLines = (text: string): ReadonlyArray<[string, string]> =>
  text.split("\r\n").flatMap((line): ReadonlyArray<[string, string]> => {
    const colon = line.indexOf(":")
    return colon < 0 ? [] : [[line.slice(0, colon), line.slice(colon + 1)]]
  })

/** `ACL GETUSER` answers names and values by turns (protocol version 2); versions since 7.0 have this shape. */
const UserReply = Schema.Tuple([
  Schema.Literal("flags"),
  Schema.Array(Schema.String),
  Schema.Literal("passwords"),
  Schema.Array(Schema.String),
  Schema.Literal("commands"),
  Schema.String,
  Schema.Literal("keys"),
  Schema.String,
  Schema.Literal("channels"),
  Schema.String,
  Schema.Literal("selectors"),
  Schema.Array(Schema.Unknown)
])
const LookReply = Schema.Tuple([
  Schema.String,
  Schema.String,
  Schema.Array(Schema.String),
  Schema.Array(Schema.String),
  Schema.Array(Schema.NullOr(UserReply))
])
const TransactionReply = Schema.Array(Schema.Unknown)

const understood = <A, I>(schema: Schema.Codec<A, I>, reply: unknown) =>
  Effect.mapError(
    Schema.decodeUnknownEffect(schema)(reply),
    // The parser's message would quote the answer, with the digests that are in it.
    () =>
      new RedisControlError({
        reason: "failed",
        message: "The server answered in a form that is not known; version 7 or newer is needed"
      })
  )

const toUser = (reply: typeof UserReply.Type): LiveUser => ({
  flags: reply[1],
  passwords: reply[3],
  commands: reply[5],
  keys: reply[7],
  channels: reply[9],
  selectors: reply[11]
})
