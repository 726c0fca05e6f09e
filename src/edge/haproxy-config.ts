/**
 * The whole configuration of HAProxy, as a function of settings. Nothing in it changes with apps, domains, certificates or
 * access: these are lines of maps and a list of certificates, which the agent changes through the control socket. (HAProxy
 * 2.6, configuration manual. Rules run in the order of their kinds: every `http-request` before any `use_backend`.)
 */
import { createHmac } from "node:crypto"
import { logFormats, logRing, logRules, logTarget } from "./requests/log-format.ts"

/** The files that it reads, in its folder. */
export const files = {
  /** `host environment|hstsSeconds|redirectTo`, with empty fields. */
  hosts: "hosts.map",
  /**
   * `environment access|address|port|tls name|Host|count|address:port~address:port`; without an address the agent answers.
   * The last two are there for apps that may have several instances.
   */
  sites: "sites.map",
  certificates: "certificates.list",
  certificateDir: "certificates",
  /** What is used for no name: HAProxy wants one to begin with. */
  fallback: "fallback.pem"
} as const

/** Cookies of the platform on an app's host. Apps see none of them. */
export const platformCookies = {
  /** A ticket: JWT (HS256) `{h: host, e: environment, exp, u: token for the app}`. */
  ticket: "__Host-svc_access",
  visitor: "__Host-svc_visitor",
  state: "__Host-svc_state"
} as const

/** Headers between HAProxy and the agent. */
export const agentHeaders = {
  /** Says that a request comes from HAProxy. */
  key: "X-Svc-Edge-Key",
  client: "X-Svc-Edge-Client",
  scheme: "X-Svc-Edge-Scheme"
} as const

/** Paths that the agent answers for every host name. */
export const agentPaths = { challenge: "/.well-known/acme-challenge/", own: "/.svc/" } as const

export interface EdgeConfig {
  readonly host: string
  readonly httpsPort: number
  readonly httpPort: number
  /** In URLs that browsers are sent to. */
  readonly publicHttpsPort: number
  readonly appsDomain: string
  /** The folder with all files that are named here. */
  readonly folder: string
  /** Unix sockets: absolute paths. */
  readonly controlSocket: string
  readonly internalSocket: string
  /** Where requests come in again whose instance took no connection. */
  readonly secondSocket: string
  readonly agentPort: number
  /** Of who takes the log of requests. */
  readonly logPort: number
  readonly agentKey: string
  readonly ticketKey: string
  /** Of authorities that certificates of origins are from: a file, or `@system-ca`. */
  readonly originAuthorities: string
  /** Ranges from which connections begin with a header of the PROXY protocol. */
  readonly proxyProtocolFrom: ReadonlyArray<string>
  /** Ranges whose last entry of `X-Forwarded-For` is believed. */
  readonly trustedProxies: ReadonlyArray<string>
  readonly maxConnections: number
  /** Of them, from one address (IPv6: from one /64). */
  readonly addressConnections: number
  /** Seconds: until the headers of a request are there; without a byte; without one in a WebSocket. */
  readonly headerSeconds: number
  readonly idleSeconds: number
  readonly tunnelSeconds: number
  /** Seconds until an origin takes a connection. */
  readonly connectSeconds: number
  readonly holdSeconds: number
}

/** Of one app, as far as the edge chooses among them. */
export const mostInstances = 10
export const instanceSeparator = "~"
/** The backend whose table counts requests under way by instance. */
export const instancesBackend = "instances"

/** A visitor that has to say something, or to take what there is, may be silent so long. */
const silentSeconds = 30

const quoted = (text: string) => `"${text.replace(/["\\$]/g, "\\$&")}"`
const bindAddress = (host: string) => (host.includes(":") ? `[${host}]` : host)

export const haproxyConfig = (config: EdgeConfig): string => {
  const { host, agentKey } = config
  /** Says whether a request has come through the edge before, through whichever of its nodes. */
  const via = createHmac("sha256", config.ticketKey).update("edge/via").digest("hex").slice(0, 32)
  const port = config.publicHttpsPort === 443 ? "" : `:${config.publicHttpsPort}`
  const own = `path_beg ${agentPaths.challenge} ${agentPaths.own}`
  const proxied = (lines: ReadonlyArray<string>, ranges: ReadonlyArray<string>) =>
    ranges.length === 0 ? [] : lines.map((line) => line.replace("RANGES", ranges.join(" ")))
  const cookies = Object.values(platformCookies)

  const proxies = [...config.proxyProtocolFrom, ...config.trustedProxies]
  /** Many visitors come by one proxy: whoever that is keeps them apart. */
  const counted = proxies.length === 0 ? "" : ` unless { src ${proxies.join(" ")} }`
  /** Counted before TLS: a handshake that never ends is a connection too. */
  const perAddress = [
    `tcp-request connection track-sc0 src,ipmask(32,64) table addresses${counted}`,
    `tcp-request connection reject if { sc0_conn_cur(addresses) gt ${config.addressConnections} }`
  ]
  /** The same at both doors: whose request it is, and for which host. */
  const beginning = [
    ...perAddress,
    ...proxied(["tcp-request connection expect-proxy layer4 if { src RANGES }"], config.proxyProtocolFrom),
    ...proxied(
      [
        "http-request set-src req.hdr(x-forwarded-for,-1) if { src RANGES } { req.hdr(x-forwarded-for) -m found }"
      ],
      config.trustedProxies
    )
  ]
  /** Nothing that the platform says about a visitor may come from one; many apps read _ as -. */
  const cleaning = [
    // Fields of one connection only (RFC 9110, section 7.6.1), and what CGI programs read as the variable HTTP_PROXY, are
    // with them: each rule costs every request as much as all of these names in one.
    "http-request del-header (?i)^(x[-_](svc|forwarded|real)|(forwarded|proxy|http2-settings|keep-alive|proxy-connection)$) -m reg"
  ]
  /** What would mean one thing here and another to an app. */
  const strictness = [
    // More than a name and a port: apps that make URLs of it would send visitors elsewhere.
    "http-request deny deny_status 400 unless { req.fhdr(host) -m reg ^[A-Za-z0-9.-]+(:[0-9]{1,5})?$ }",
    // Whatever follows a CONNECT that an app accepts would reach it as it is; TRACE shows what is for the app alone.
    "http-request deny deny_status 405 if { method CONNECT TRACE }",
    // RFC 9112, section 6.1: where such a message ends nobody can say.
    "http-request deny deny_status 400 if HTTP_1.0 { req.fhdr(transfer-encoding) -m found }",
    // RFC 9110, section 5.5.
    // HTTP/2 has it refused before (RFC 9113, section 8.2.1), and its URI reaches an app as a path.
    "http-request deny deny_status 400 if !HTTP_2.0 { req.hdrs -m reg '\\x00' }",
    "http-request set-uri %[pathq] if !HTTP_2.0 { url_beg -i http:// https:// }",
    // An app that goes over to another protocol than WebSocket, such as h2c, would take requests that were never looked at.
    "acl websocket req.fhdr(upgrade) -i -m str websocket",
    "http-request del-header Upgrade unless websocket",
    "http-request del-header Connection",
    "http-request set-header Connection Upgrade if websocket"
  ]
  const lookup = [
    // All of it, where it holds commas too.
    "http-request set-var(txn.host) req.fhdr(host),host_only,lower,rtrim(.)",
    `http-request set-var(txn.entry) var(txn.host),map_str(${files.hosts})`,
    "http-request set-var(txn.environment) var(txn.entry),field(1,|)"
  ]
  const section = (head: string, lines: ReadonlyArray<string>) =>
    [head, ...lines.map((line) => `  ${line}`)].join("\n")

  return `${[
    section("global", [
      // Also for a reload, after somebody has deleted the folder that it was started in.
      `default-path origin ${quoted(config.folder)}`,
      `stats socket ${quoted(config.controlSocket)} mode 600 level admin expose-fd listeners`,
      `maxconn ${config.maxConnections}`,
      // A worker that was replaced keeps its WebSockets until then.
      `hard-stop-after ${config.tunnelSeconds}s`,
      logTarget,
      "ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets",
      "tune.ssl.cachesize 20000"
    ]),
    section("defaults", [
      "mode http",
      "log global",
      "option dontlognull",
      "option http-keep-alive",
      `timeout connect ${config.connectSeconds}s`,
      // Also for who says nothing: neither a handshake nor a request. While an app answers it does not count.
      `timeout client ${Math.min(config.idleSeconds, silentSeconds)}s`,
      `timeout server ${config.idleSeconds}s`,
      `timeout http-request ${config.headerSeconds}s`,
      "timeout http-keep-alive 60s",
      `timeout tunnel ${config.tunnelSeconds}s`,
      "timeout client-fin 10s",
      "timeout queue 10s",
      "retries 1",
      ...[
        [502, "The app gave no answer that can be understood."],
        [503, "The app does not answer."],
        [504, "The app did not answer in time."]
      ].map(
        ([status, text]) =>
          `http-error status ${status} content-type "text/plain; charset=utf-8" string "${text}\\n" hdr Cache-Control no-store`
      )
    ]),
    section("ring requests", logRing(config.logPort)),
    section("backend addresses", ["stick-table type ipv6 size 200k expire 60s store conn_cur"]),
    section("frontend edge", [
      `bind ${bindAddress(host)}:${config.httpsPort} name tls ssl crt ${files.fallback} crt-list ${files.certificates} strict-sni alpn h2,http/1.1`,
      // What the agent has let through comes in here, and is judged like everything else.
      `bind ${quoted(`unix@${config.internalSocket}`)} mode 600 name internal`,
      ...logFormats,
      "acl internal so_name internal",
      `acl agents ${own}`,
      ...beginning.map((line) => (line.startsWith("http-request") ? `${line} !internal` : line)),
      `http-request set-src req.hdr(${agentHeaders.client}) if internal`,
      // Its own address as an app's origin: around in a circle without end.
      `http-request return status 508 content-type text/plain string "The origin of this app is the edge itself.\\n" if { req.hdr(X-Svc-Via) -m str ${via} }`,
      ...cleaning,
      ...lookup,
      ...logRules,
      "http-request set-log-level silent if internal",
      // What `second` is told of a request, besides the request.
      "unique-id-format %[var(txn.two)]",
      ...strictness,
      // The certificate was for the name in the handshake; other names are not served on it (RFC 9110, section 15.5.20).
      "http-request return status 421 if !internal !{ ssl_fc_sni,lower,strcmp(txn.host) eq 0 }",
      // Of two, only one would be cut from the header before the app.
      "http-request set-var(txn.cookies) bool(true) if { req.fhdr(cookie) -m sub __Host-svc_ }",
      "acl cookies var(txn.cookies) -m found",
      ...cookies.map((name) => `http-request deny deny_status 400 if cookies { req.cook_cnt(${name}) gt 1 }`),
      `http-request redirect code 308 location https://%[var(txn.entry),field(3,|)]${port}%[pathq] if { var(txn.entry),field(3,|) -m len gt 0 } !agents`,
      `http-request set-var(txn.site) var(txn.environment),map_str(${files.sites})`,
      // None of them is there any more.
      "http-request add-header X-Forwarded-For %[src]",
      "http-request add-header X-Forwarded-Proto https",
      "http-request add-header X-Forwarded-Host %[req.fhdr(host)]",
      "acl located var(txn.site),field(2,|) -m len gt 0",
      "http-request set-var(txn.public) bool(true) if { var(txn.site),field(1,|) -m str public }",
      "acl public var(txn.public) -m found",
      // Most requests: what follows is about tickets and about the agent.
      "http-request allow if public located !agents",
      `http-request set-var(txn.ticket) req.cook(${platformCookies.ticket}) if !public`,
      "http-request set-var(txn.alg) var(txn.ticket),jwt_header_query('$.alg') if !public",
      "http-request set-var(txn.ticket_host) var(txn.ticket),jwt_payload_query('$.h') if !public",
      "http-request set-var(txn.ticket_environment) var(txn.ticket),jwt_payload_query('$.e') if !public",
      "http-request set-var(txn.now) date() if !public",
      "http-request set-var(txn.left) var(txn.ticket),jwt_payload_query('$.exp','int'),sub(txn.now) if !public",
      "acl hs256 var(txn.alg) -m str HS256",
      `acl genuine var(txn.ticket),jwt_verify(txn.alg,"${config.ticketKey}") 1`,
      "acl for_host var(txn.ticket_host),strcmp(txn.host) eq 0",
      "acl for_environment var(txn.ticket_environment),strcmp(txn.environment) eq 0",
      "acl fresh var(txn.left) -m int gt 0",
      "http-request set-var(txn.admitted) bool(true) if !public hs256 genuine for_host for_environment fresh",
      "acl admitted var(txn.admitted) -m bool",
      "http-request set-var(txn.to_agent) bool(true) if agents",
      "http-request set-var(txn.to_agent) bool(true) if !located",
      "http-request set-var(txn.to_agent) bool(true) if !public !admitted",
      "acl to_agent var(txn.to_agent) -m bool",
      // It comes from the agent: not back to it.
      'http-request return status 503 content-type text/plain string "The app is not served here yet.\\n" hdr Retry-After 5 if internal to_agent',
      "http-request set-var(txn.scheme) str(https)",
      "use_backend agent if to_agent",
      "use_backend tls_origins if { var(txn.site),field(4,|) -m len gt 0 }",
      `use_backend ${instancesBackend} if { var(txn.site),field(6,|) -m len gt 0 }`,
      "default_backend apps",
      'http-after-response set-header Strict-Transport-Security "max-age=%[var(txn.entry),field(2,|)]" if { var(txn.entry),field(2,|) -m int gt 0 }',
      // A managed host name is one of many below a domain that no app has for itself.
      ...[
        ["^(.*);\\s*domain\\s*=[^;]*(.*)$", "\\1\\2"],
        // One that names several means none of them well.
        ["^.*;\\s*domain\\s*=.*$", "svc_refused=; Max-Age=0"]
      ].map(
        ([pattern, replaced]) =>
          `http-response replace-header Set-Cookie '(?i)${pattern}' '${replaced}' if { var(txn.host) -m end .${config.appsDomain} }`
      ),
      "http-response replace-header Set-Cookie '(?i)^\\s*__Host-svc_.*$' 'svc_refused=; Max-Age=0' if !to_agent"
    ]),
    section("frontend plain", [
      `bind ${bindAddress(host)}:${config.httpPort} name plain`,
      ...logFormats,
      `acl agents ${own}`,
      ...beginning,
      ...cleaning,
      ...lookup,
      ...logRules,
      ...strictness,
      "http-request set-var(txn.scheme) str(http)",
      `http-request redirect code 308 location https://%[var(txn.host)]${port}%[pathq] if !agents { var(txn.entry) -m found }`,
      "default_backend agent"
    ]),
    ...(["apps", "tls_origins", instancesBackend] as const).map((name) =>
      section(`backend ${name}`, [
        ...(name === instancesBackend ? leastBusy : []),
        "acl cookies var(txn.cookies) -m found",
        "http-request set-var(txn.user) var(txn.ticket),jwt_payload_query('$.u') if { var(txn.admitted) -m bool }",
        "http-request set-header X-Svc-User %[var(txn.user)] if { var(txn.user) -m len gt 0 }",
        ...cookies.map(
          (cookie) =>
            `http-request replace-header Cookie '^(.*;\\s*|\\s*)${cookie}=[^;]*(;\\s*|$)(.*)$' '\\1\\3' if cookies`
        ),
        "http-request replace-header Cookie '^(.*\\S)\\s*;\\s*$' '\\1' if cookies",
        "http-request del-header Cookie if cookies !{ req.fhdr(cookie) -m len gt 0 }",
        `http-request set-header X-Svc-Via ${via}`,
        ...(name === instancesBackend
          ? [
              "http-request set-dst var(txn.one),field(1,:)",
              "http-request set-dst-port var(txn.one),field(2,:)"
            ]
          : [
              "http-request set-dst var(txn.site),field(2,|)",
              "http-request set-dst-port var(txn.site),field(3,|)"
            ]),
        "http-request set-header Host %[var(txn.site),field(5,|)] if { var(txn.site),field(5,|) -m len gt 0 }",
        "http-reuse safe",
        ...(name === instancesBackend ? orElse(config.secondSocket) : []),
        name !== "tls_origins"
          ? `server any 0.0.0.0:0${name === instancesBackend ? " weight 0" : ""}`
          : `server any 0.0.0.0:0 ssl verify required ca-file ${quoted(config.originAuthorities)} sni var(txn.site),field(4,|)`
      ])
    ),
    section("frontend second", [
      `bind ${quoted(`unix@${config.secondSocket}`)} mode 600 accept-proxy name second`,
      // It passed another one already.
      "no log",
      "http-request set-var(txn.two) fc_pp_unique_id",
      `http-request track-sc1 var(txn.two) table ${instancesBackend}`,
      "http-request set-dst var(txn.two),field(1,:)",
      "http-request set-dst-port var(txn.two),field(2,:)",
      "default_backend second"
    ]),
    section("backend second", ["retries 0", "http-reuse never", "server any 0.0.0.0:0"]),
    section("backend agent", [
      // A restart of the agent is a delay, not an error. Over TCP only: a Unix socket that nobody listens on is given up.
      "retries 10",
      "retry-on conn-failure empty-response",
      "http-request disable-l7-retry unless METH_GET",
      // A connection of its own for each request. One that is used again may be closed by then, and HAProxy leaves it to
      // the client to try again: it hangs up.
      "option http-server-close",
      "timeout connect 1s",
      `timeout server ${config.holdSeconds + 60}s`,
      `http-request set-header ${agentHeaders.key} ${agentKey}`,
      `http-request set-header ${agentHeaders.client} %[src]`,
      `http-request set-header ${agentHeaders.scheme} %[var(txn.scheme)]`,
      `server agent 127.0.0.1:${config.agentPort}`
    ])
  ].join("\n")}\n`
}

/**
 * Of two instances of an app that are next to each other, beginning with any, the one with fewer requests under way ("power
 * of two choices", Mitzenmacher 2001; HAProxy's own `balance random(2)` is for servers that its configuration names).
 * A WebSocket is under way until it ends.
 */
const leastBusy: ReadonlyArray<string> = [
  "stick-table type string len 64 size 100k expire 10m store conn_cur",
  "http-request set-var(txn.count) var(txn.site),field(6,|),add(0)",
  "http-request set-var(txn.first) rand,mod(txn.count)",
  "http-request set-var(txn.second) var(txn.first),add(1),mod(txn.count)",
  ...[
    ["first", "one"],
    ["second", "two"]
  ].flatMap(([index, name]) =>
    Array.from(
      { length: mostInstances },
      (_, at) =>
        `http-request set-var(txn.${name}) var(txn.site),field(7,|),field(${at + 1},${instanceSeparator}) if { var(txn.${index}) -m int ${at} }`
    )
  ),
  `http-request set-var(txn.one_load) var(txn.one),table_conn_cur(${instancesBackend})`,
  `http-request set-var(txn.two_load) var(txn.two),table_conn_cur(${instancesBackend})`,
  "acl busier var(txn.two_load),sub(txn.one_load) -m int lt 0",
  "http-request set-var(txn.other) var(txn.one) if busier",
  "http-request set-var(txn.one) var(txn.two) if busier",
  "http-request set-var(txn.two) var(txn.other) if { var(txn.other) -m found }",
  "http-request track-sc1 var(txn.one)"
]

/**
 * An instance that has just ended takes no connection, and the edge hears of it a moment later. Nothing of the request was
 * sent by then, so whatever it is, it goes to the other one of the two: once, by a frontend that is told its address in
 * the header of the PROXY protocol. A server without weight gets what is meant for it and nothing else, so that the one
 * that is left is that of a second try.
 */
const orElse = (secondSocket: string): ReadonlyArray<string> => [
  "option redispatch 1",
  "use-server any if TRUE",
  `server second ${quoted(`unix@${secondSocket}`)} send-proxy-v2 proxy-v2-options unique-id`
]
