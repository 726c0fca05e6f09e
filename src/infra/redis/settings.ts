/**
 * What a managed cache server should be set to, as data: its users, its live settings, and the two files that
 * it starts from. Pure: nothing here touches a server.
 */
import { createHash } from "node:crypto"
import * as path from "node:path"
import { clientBufferBytes, oomScores } from "../host/server-limits.ts"

/** Everything about one server that a reconciler may choose or that was assigned to it. */
export interface RedisDesired {
  /** Folder of the server. */
  readonly dir: string
  readonly socket: string
  /** Address that the TLS port listens on. */
  readonly host: string
  readonly port: number
  /** File in {@link dir} with the certificate and its key. */
  readonly certificate: string
  readonly memoryMb: number
  readonly cpus: number
  readonly maxClients: number
  readonly evictionPolicy: string
  readonly appendOnly: boolean
  /** SHA-256 of the application user's password, in hex. */
  readonly passwordDigest: string
  /** SHA-256 of the control user's password, in hex. */
  readonly controlDigest: string
}

export const configName = "redis.conf"
export const usersName = "users.acl"
export const pidName = "redis.pid"
export const logName = "server.log"
/** Folder that the server keeps its append-only file in. */
export const appendOnlyName = "appendonlydir"
/** Written when the first copy of what is in memory is complete. */
export const appendOnlyManifest = "appendonly.aof.manifest"

/** The user that applications connect as. */
export const appUser = "svc"
/**
 * The control plane's own user: it may look at the server and change its settings and users, but reads no
 * key. The server cannot bind a user to the Unix socket; what keeps it off the network is that its password is
 * 256 derived bits which no file holds and no connection but the one through that socket ever carries.
 */
export const controlUser = "svc-control"

export const appKeys = "~*"
export const appChannels = "&*"
/**
 * Everything but administration, with the commands that client libraries and frameworks rely on given back:
 * INFO (ready checks), KEYS and SORT, and FLUSHDB, which is how frameworks clear "their" cache. The server
 * belongs to one environment, so these can harm nobody else. FLUSHALL stays away, as do RESTORE (crafted
 * payloads), MIGRATE (opens connections), DEBUG, CONFIG, MODULE and every other way out of the key space.
 */
const appCommands = ["+@all", "-@admin", "-@dangerous", "+info", "+keys", "+sort", "+sort_ro", "+flushdb"]
export const controlCommands = [
  "-@all",
  "+acl",
  "+config|get",
  "+config|set",
  "+client|kill",
  "+script|kill",
  "+function|kill",
  "+shutdown",
  "+info",
  "+multi",
  "+exec"
]

/**
 * A server describes command rules in words of its own, which differ between versions. So the rules are also
 * given to a user that can never sign in, named after them: the application user must read like that one.
 */
export const referenceUser = `svc-rules-${createHash("sha256").update(appCommands.join(" ")).digest("hex").slice(0, 8)}`

const appRules = [appKeys, appChannels, ...appCommands]

/** Rules of every user there should be. */
export const userRules = (desired: Pick<RedisDesired, "passwordDigest" | "controlDigest">) =>
  new Map<string, ReadonlyArray<string>>([
    ["default", ["off"]],
    [appUser, ["on", `#${desired.passwordDigest}`, ...appRules]],
    [controlUser, ["on", `#${desired.controlDigest}`, ...controlCommands]],
    [referenceUser, ["off", ...appRules]]
  ])

const certificateFile = (desired: RedisDesired) => path.join(desired.dir, desired.certificate)

const live = {
  bind: (desired: RedisDesired) => desired.host,
  port: () => "0",
  "tls-port": (desired: RedisDesired) => String(desired.port),
  "tls-cert-file": certificateFile,
  "tls-key-file": certificateFile,
  "tls-auth-clients": () => "no",
  "tls-protocols": () => "TLSv1.2 TLSv1.3",
  maxmemory: (desired: RedisDesired) => String(desired.memoryMb * 1024 * 1024),
  // Whoever does not read, or sends without end, is disconnected; all together hold no more than that.
  "maxmemory-clients": ({ memoryMb }: RedisDesired) => String(clientBufferBytes(memoryMb)),
  "client-output-buffer-limit": ({ memoryMb }: RedisDesired) => {
    const most = clientBufferBytes(memoryMb)
    return `normal ${most} 0 0 slave 268435456 67108864 60 pubsub ${most} 8388608 60`
  },
  // A larger value could be written, and never be read again.
  "proto-max-bulk-len": ({ memoryMb }: RedisDesired) => String(clientBufferBytes(memoryMb)),
  maxclients: (desired: RedisDesired) => String(desired.maxClients),
  // The child that writes the append-only file anew is ended before the server.
  "oom-score-adj": () => (process.platform === "linux" ? "absolute" : "no"),
  "oom-score-adj-values": () => `${oomScores.server} ${oomScores.server} ${oomScores.partOfServer}`,
  "maxmemory-policy": (desired: RedisDesired) => desired.evictionPolicy,
  appendonly: (desired: RedisDesired) => (desired.appendOnly ? "yes" : "no"),
  appendfsync: () => "everysec",
  // Milliseconds of one script after which the server tells everybody else that it is busy: its own default.
  "busy-reply-threshold": () => "5000",
  // Without the append-only file nothing is to reach the disk; with it, snapshots would be a second copy.
  save: () => ""
}
export type LiveSetting = keyof typeof live
export const liveSettingNames = Object.keys(live) as ReadonlyArray<LiveSetting>

/** Settings that a running server takes over at once, as it reports them. */
export const liveSettings = (desired: RedisDesired): ReadonlyMap<LiveSetting, string> =>
  new Map(liveSettingNames.map((name) => [name, live[name](desired)]))

/** The configuration file. It holds no secret; users and their digests are in a file of their own. */
export const renderConfig = (desired: RedisDesired): string => {
  const fixed = new Map([
    ["dir", desired.dir],
    ["pidfile", path.join(desired.dir, pidName)],
    ["aclfile", path.join(desired.dir, usersName)],
    ["appenddirname", appendOnlyName],
    ["unixsocket", desired.socket],
    ["unixsocketperm", "700"],
    ["daemonize", "no"],
    // The command line then keeps naming this file, by which the process is told from others.
    ["set-proc-title", "no"],
    ["enable-debug-command", "no"],
    ["enable-module-command", "no"],
    ["enable-protected-configs", "no"]
  ])
  const lines = [...fixed, ...liveSettings(desired)].map(([name, value]) => `${name} ${quoted(value)}`)
  return `# Written by the control plane, which reverts changes made here.\n${lines.join("\n")}\n`
}

export const renderUsers = (desired: RedisDesired): string =>
  [...userRules(desired)].map(([name, rules]) => `user ${name} ${rules.join(" ")}\n`).join("")

const quoted = (value: string): string =>
  /^[\w./:|-]+$/.test(value) ? value : `"${value.replace(/[\\"]/g, (character) => `\\${character}`)}"`
