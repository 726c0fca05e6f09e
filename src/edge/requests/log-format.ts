/**
 * What the proxy writes of each request, and how it is read: one line of JSON without a syslog header (HAProxy 2.6
 * Configuration Manual, 8.2.4 "Custom log format"; `json` in 7.3.1). Lines go into a ring in the proxy's memory, and from
 * there over a TCP connection to this machine, many at a time (3.9 "Rings"): a datagram for each would cost more of the
 * processor than all rules together. While nobody takes them the ring keeps the first ones; those that follow are lost.
 *
 * Everything that a visitor chooses passes HAProxy's converter `json(ascii)`, which escapes quotes, backslashes and control
 * characters, and writes each byte above 127 as one `\u00XX`: nothing in a host name, a method or a path can end its
 * string. All of them are cut, so that a line is never longer than HAProxy sends. The query and the visitor's address
 * are not in it: they are often personal, or secret.
 */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { visibleLine } from "#src/cli/visible.ts"

/** Bytes that are kept of what a visitor chooses. */
const longest = { host: 253, method: 32, path: 1024 }
/** Every byte of them as `\u00XX`, and the rest of a line. */
export const lineBytes = 8192

/** In `global`: where lines go. Frontends whose requests are logged say `log global` and `logFormats`. */
export const logTarget = `log ring@requests len ${lineBytes} format raw local0 info`

/** The lines of `ring requests`: who takes the log is listened for on this TCP port, and tried again and again. */
export const logRing = (port: number): ReadonlyArray<string> => [
  "format raw",
  // A line, and what HAProxy puts around it.
  `maxlen ${lineBytes + 128}`,
  `size ${4 * 1024 * 1024}`,
  "timeout connect 1s",
  "timeout server 30s",
  `server agent 127.0.0.1:${port}`
]

/**
 * In each frontend whose requests are logged, once `txn.environment` (the uid of the environment, unset for others) and
 * `txn.host` are set, and before anything answers. Frontends for requests that passed another one already log nothing.
 */
export const logRules: ReadonlyArray<string> = [
  "http-request set-log-level silent unless { var(txn.environment) -m found }",
  // A variable holds a method without its name unless it is made a string.
  `http-request set-var(txn.method) method,bytes(0,${longest.method})`,
  `http-request set-var(txn.path) path,bytes(0,${longest.path})`
]

const text = (name: string, length: number) => `%[var(txn.${name}),bytes(0,${length}),json(ascii)]`

/** Lines are numbered by process and frontend, so that lost ones are seen. */
const numbered = `"source":"%f-%pid","number":%lc,"at":%[date(0,ms)]`

/** `%Ta` is without the time that an idle connection waited. */
const requestFormat = `log-format '{${[
  numbered,
  `"environment":"%[var(txn.environment)]"`,
  `"host":"${text("host", longest.host)}"`,
  `"method":"${text("method", longest.method)}"`,
  `"path":"${text("path", longest.path)}"`,
  `"status":%ST,"durationMs":%Ta,"bytesIn":%U,"bytesOut":%B,"end":"%ts"`
].join(",")}}'`

/** Of a connection that failed before any request, as a handshake for an unknown name does: numbered, and of nobody. */
const errorFormat = `error-log-format '{${[
  numbered,
  `"environment":"-","host":"","method":"","path":""`,
  `"status":-1,"durationMs":0,"bytesIn":0,"bytesOut":0,"end":"--"`
].join(",")}}'`

/** In each frontend whose requests are logged. */
export const logFormats: ReadonlyArray<string> = [requestFormat, errorFormat]

/** A request that was answered, or that ended without. */
export interface LoggedRequest {
  /** Uid of the environment. */
  readonly environment: string
  readonly host: string
  readonly method: string
  /** Without query. Not valid UTF-8: such bytes are U+FFFD. */
  readonly path: string
  /** Null: there was no answer. */
  readonly status: number | null
  /** From its first byte to the last one of its answer. */
  readonly durationMs: number
  /** As they went through the connection's HTTP, header fields included. */
  readonly bytesIn: number
  readonly bytesOut: number
  /** How it ended, in two letters; `--` is as it should (HAProxy Configuration Manual, 8.5). */
  readonly end: string
}

/** A line of the log: lines are numbered by source. */
export interface LogLine {
  readonly source: string
  readonly number: number
  /** When it was written, in milliseconds since 1970. */
  readonly at: number
  /** None: it is of no environment, or was none that could be read. */
  readonly request: Option.Option<LoggedRequest>
}

const whole = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const Line = Schema.fromJsonString(
  Schema.Struct({
    source: Schema.String.check(Schema.isMaxLength(64)),
    number: whole,
    at: whole,
    environment: Schema.String.check(Schema.isPattern(/^(-|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/)),
    host: Schema.String.check(Schema.isMaxLength(longest.host)),
    method: Schema.String.check(Schema.isMaxLength(longest.method)),
    path: Schema.String.check(Schema.isMaxLength(longest.path)),
    status: Schema.Int.check(Schema.isBetween({ minimum: -1, maximum: 999 })),
    durationMs: Schema.Int,
    bytesIn: whole,
    bytesOut: whole,
    end: Schema.String.check(Schema.isPattern(/^[A-Za-z-]{2}$/))
  })
)
const decode = Schema.decodeUnknownOption(Line)

/** Each character is a byte of what was sent. What would steer a terminal is shown as its escape, for whoever reads it. */
const readable = (bytes: string): string => visibleLine(Buffer.from(bytes, "latin1").toString("utf8"))

/** None: it is no line of the log. */
export const parseLine = (line: string): Option.Option<LogLine> =>
  Option.map(decode(line), ({ source, number, at, status, durationMs, host, method, path, ...rest }) => ({
    source,
    number,
    at,
    request:
      rest.environment === "-"
        ? Option.none()
        : Option.some({
            ...rest,
            host: readable(host),
            method: readable(method),
            // `OPTIONS *` has none.
            path: path === "-" ? "*" : readable(path),
            status: status < 100 ? null : status,
            // A request that was never complete has -1.
            durationMs: Math.max(0, durationMs)
          })
  }))
