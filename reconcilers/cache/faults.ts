/** How a cache server departs from what it should be, and which act makes it right. Pure: compares what was seen. */
import * as Duration from "effect/Duration"
import type { InspectedCertificate } from "#src/infra/CertificateAuthority.ts"
import { cacheLimits, limitFaults, outOfMemory, type ServerLimits } from "#src/infra/host/server-limits.ts"
import type { LiveServer, LiveUser } from "#src/infra/redis/RedisControl.ts"
import type { RedisServer, RedisSettings } from "#src/infra/redis/RedisServers.ts"
import {
  appChannels,
  appKeys,
  appUser,
  controlCommands,
  controlUser,
  type LiveSetting,
  referenceUser
} from "#src/infra/redis/settings.ts"

export interface Fault {
  readonly field: string
  readonly message: string
  /** Whether users cannot rely on the cache until it is repaired. */
  readonly blocking: boolean
  readonly repair:
    | "certificate"
    | "files"
    | "process"
    | "users"
    | "settings"
    | "limits"
    | "rebuild"
    | "discard"
}

/** A certificate is replaced this long before it ends: many daily looks before anybody is in trouble. */
const renewBefore = Duration.toMillis("30 days")

/** The first of the names is the one that most clients use. */
export const certificateFaults = (
  certificate: InspectedCertificate | undefined,
  names: readonly [string, ...ReadonlyArray<string>],
  now: number
): ReadonlyArray<Fault> => {
  const fault = (message: string, blocking: boolean): ReadonlyArray<Fault> => [
    { field: "/certificate", message, blocking, repair: "certificate" }
  ]
  if (certificate === undefined) return fault("there is no certificate that can be read", true)
  if (!certificate.trusted) return fault("it was not signed by the authority of this platform", true)
  const missing = names.find((name) => !certificate.covers(name))
  if (missing !== undefined) return fault(`it does not name ${missing}`, missing === names[0])
  const left = certificate.expiresAt.getTime() - now
  if (left < renewBefore) return fault(`it ends ${certificate.expiresAt.toISOString()} and is due`, left <= 0)
  return []
}

export const limitsOf = (settings: RedisSettings): ServerLimits => cacheLimits(settings, settings.appendOnly)

/** The files decide what comes back after a crash or a restart of the machine. */
export const fileFaults = (server: RedisServer, settings: RedisSettings): ReadonlyArray<Fault> => {
  const expected = server.expected(settings)
  const fault = (name: string): Fault => ({
    field: `/files/${name}`,
    message: "the file is not the one that this specification comes to",
    blocking: false,
    repair: "files"
  })
  return [
    ...(expected === undefined || server.config !== expected.config ? [fault("config")] : []),
    ...(expected === undefined || server.users !== expected.users ? [fault("users")] : [])
  ]
}

/** How long a server may be kept busy by scripts, from when that was seen. */
const scriptLimit = Duration.toMillis("30 seconds")
/** How long it may not answer at all: on a machine that is busy that takes a while to be sure of. */
const silenceLimit = Duration.toMillis("2 minutes")
/** Between looks at a server that may answer again by itself. */
const lookAgain = "5 seconds"

/**
 * How to get hold of a server again that has not answered for so many milliseconds; undefined: it is waited for.
 * `end script`: ends the server too if nothing less ends the script.
 */
export const remedyOf = (
  { process }: RedisServer,
  unansweredMs: number
): "end script" | "restart" | undefined => {
  if (process._tag !== "Uncontrolled") return undefined
  switch (process.state) {
    case "lost":
      return "restart"
    case "busy":
      return unansweredMs >= scriptLimit ? "end script" : undefined
    case "silent":
      return unansweredMs >= silenceLimit ? "restart" : undefined
    case "refusing":
      return undefined
  }
}

export const processFaults = (
  server: RedisServer,
  settings: RedisSettings,
  unansweredMs: number
): ReadonlyArray<Fault> => {
  const { process } = server
  const limits = limitFaults(server.held, limitsOf(settings)).map(
    (message): Fault => ({ field: "/limits", message, blocking: false, repair: "limits" })
  )
  if (process._tag === "Stopped")
    return [{ field: "/process", message: "the server does not run", blocking: true, repair: "process" }]
  if (process._tag === "Uncontrolled")
    return remedyOf(server, unansweredMs) === undefined
      ? []
      : [{ field: "/process", message: process.message, blocking: true, repair: "process" }]
  // A server that still reads its data is right or not, but not to be changed before it is done.
  if (process.live.loading) return limits
  return [
    ...limits,
    ...settingFaults(server, settings, process.live),
    ...userFaults(settings, process.live),
    ...appendOnlyFaults(server, settings, process.live)
  ]
}

const fieldOf: Readonly<Record<LiveSetting, string>> = {
  bind: "/endpoint",
  port: "/endpoint",
  "tls-port": "/endpoint",
  "tls-auth-clients": "/endpoint",
  "tls-protocols": "/endpoint",
  "busy-reply-threshold": "/limits",
  "tls-cert-file": "/certificate",
  "tls-key-file": "/certificate",
  maxmemory: "/sku",
  "maxmemory-clients": "/sku",
  "client-output-buffer-limit": "/sku",
  "proto-max-bulk-len": "/sku",
  maxclients: "/sku",
  "oom-score-adj": "/limits",
  "oom-score-adj-values": "/limits",
  "maxmemory-policy": "/evictionPolicy",
  appendonly: "/persistence",
  appendfsync: "/persistence",
  save: "/persistence"
}

const settingFaults = (
  server: RedisServer,
  settings: RedisSettings,
  live: LiveServer
): ReadonlyArray<Fault> => {
  const expected = server.expected(settings)?.live ?? new Map<LiveSetting, string>()
  return [...expected].flatMap(([name, value]): ReadonlyArray<Fault> => {
    // Valkey calls a slave a replica.
    const seen = live.settings.get(name)?.replace("replica", "slave")
    if (seen === value) return []
    const field = fieldOf[name]
    const message = `${name} is "${seen ?? ""}" and should be "${value}"`
    return [{ field, message, blocking: field === "/endpoint", repair: "settings" }]
  })
}

const userFaults = (settings: RedisSettings, live: LiveServer): ReadonlyArray<Fault> => {
  const access = (message: string, blocking = false): Fault => ({
    field: "/access",
    message,
    blocking,
    repair: "users"
  })
  const faults: Array<Fault> = []
  const app = live.users.get(appUser)
  const reference = live.users.get(referenceUser)
  const control = live.users.get(controlUser)?.commands.split(" ") ?? []
  const anonymous = live.users.get("default")
  if (app === undefined || !app.flags.includes("on")) faults.push(access("the user cannot sign in", true))
  if (app !== undefined && (app.flags.includes("nopass") || !isOnly(app.passwords, settings.passwordDigest)))
    faults.push({
      field: "/credentialVersion",
      message: "the password is not the current one",
      blocking: true,
      repair: "users"
    })
  if (app !== undefined && !sameRules(app, reference))
    faults.push(access("what the user may do is not what it should be"))
  if (!controlCommands.every((rule) => control.includes(rule)))
    faults.push(access(`what the user ${controlUser} may do is not what it should be`))
  if (reference !== undefined && !isOff(reference))
    faults.push(access(`the user ${referenceUser} can sign in`))
  if (anonymous === undefined || !isOff(anonymous)) faults.push(access("the default user can sign in"))
  const known = new Set(["default", appUser, controlUser, referenceUser])
  for (const name of live.users.keys()) if (!known.has(name)) faults.push(access(`there is a user "${name}"`))
  return faults
}

const isOnly = (passwords: ReadonlyArray<string>, digest: string): boolean =>
  passwords.length === 1 && passwords[0] === digest

const isOff = (user: LiveUser): boolean => user.flags.includes("off") && user.passwords.length === 0

const sameRules = (app: LiveUser, reference: LiveUser | undefined): boolean =>
  reference !== undefined &&
  app.commands === reference.commands &&
  app.keys === appKeys &&
  app.channels === appChannels &&
  app.selectors.length === 0

const appendOnlyFaults = (
  { appendOnlyFile }: RedisServer,
  settings: RedisSettings,
  live: LiveServer
): ReadonlyArray<Fault> => {
  const fault = (message: string, repair: "rebuild" | "discard"): ReadonlyArray<Fault> => [
    { field: "/persistence", message, blocking: false, repair }
  ]
  // Turning it on or off is a setting of its own and comes first.
  if (live.settings.get("appendonly") !== (settings.appendOnly ? "yes" : "no")) return []
  if (!settings.appendOnly)
    return appendOnlyFile === "none" ? [] : fault("an append-only file is left over", "discard")
  return appendOnlyFile === "complete" || live.rewriting
    ? []
    : fault("the append-only file is gone", "rebuild")
}

/** Whether users can rely on the server, and if not, why and when to look again. */
export const readiness = (
  server: RedisServer,
  settings: RedisSettings,
  faults: ReadonlyArray<Fault>
): {
  readonly ready: boolean
  readonly reason?: string
  readonly message?: string
  readonly pollAfter?: Duration.Input
} => {
  const { process } = server
  if (process._tag === "Stopped")
    return { ready: false, reason: "ServerDown", message: "The server does not run and is started again" }
  if (process._tag === "Uncontrolled") {
    const { state, message } = process
    if (state === "lost")
      return { ready: false, reason: "ServerDown", message: `The server cannot be controlled: ${message}` }
    if (state === "busy") {
      const kept = settings.appendOnly ? "has what its append-only file holds" : "is empty"
      return {
        ready: false,
        reason: "ScriptBusy",
        message: `A script keeps the server busy and is ended after ${scriptLimit / 1000} s. If it has written, the server is ended with it: what the script wrote is gone, and the cache ${kept}`,
        pollAfter: lookAgain
      }
    }
    const then =
      state === "silent" ? `. It is started again after ${silenceLimit / 1000} s without an answer` : ""
    return { ready: false, reason: "NotAnswering", message: `${message}${then}`, pollAfter: lookAgain }
  }
  if (process.live.loading)
    return {
      ready: false,
      reason: "ServerStarting",
      message: "The server reads its append-only file",
      pollAfter: "500 millis"
    }
  if (settings.appendOnly && server.appendOnlyFile !== "complete")
    return {
      ready: false,
      reason: "Progressing",
      message: "The append-only file does not hold everything yet; a crash now would lose data",
      pollAfter: "250 millis"
    }
  const blocking = faults.filter((fault) => fault.blocking)
  return blocking.length === 0
    ? { ready: true }
    : {
        ready: false,
        reason: "Progressing",
        message: blocking.map(({ field, message }) => `${field}: ${message}`).join("; ")
      }
}

/** What is told when the kernel has ended the server, or a part of it, more often than was told; undefined: it has not. */
export const memoryNews = (server: RedisServer, settings: RedisSettings, told = 0) =>
  server.held.kills <= told
    ? undefined
    : {
        reason: "OutOfMemory",
        message: outOfMemory(
          "The kernel ended the cache server, or the child that writes its append-only file",
          limitsOf(settings),
          "It is started again by itself. Use fewer or smaller buffers and scripts, or a larger size (sku)"
        )
      }
