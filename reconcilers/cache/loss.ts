/**
 * What becomes of the data of a cache. One that was asked to keep it (`persistence: aof`) is never made empty by itself:
 * when its folder is gone it says so until the folder is back, or until somebody accepts the loss by asking for
 * `persistence: none`. One that keeps nothing starts empty whenever its server does, and says so each time.
 */
import type { CacheFacts, CacheSpec, CacheStatus } from "#schemas/cache.ts"
import type { Resource } from "#src/engine/Reconciler.ts"
import type { RedisServer } from "#src/infra/redis/RedisServers.ts"

type CacheResource = Resource<CacheSpec, CacheStatus, CacheFacts>

/** Between looks for a data folder that is gone: it may come back at any time. */
export const lookForDataMs = 60_000

export const lostData = {
  reason: "DataLost",
  message:
    "The cache was to keep its data, and its data folder is gone. Put the folder back; or, to accept the loss and begin " +
    "empty, set persistence to none, and to aof again once it is ready; or delete the cache and make another"
}

const keepsData = ({ facts, spec }: CacheResource): boolean =>
  spec.persistence === "aof" && facts.persisted === true

/** `server` is undefined when nothing of it is there. */
export const isLost = (resource: CacheResource, server: RedisServer | undefined): boolean => {
  if (!keepsData(resource)) return false
  if (server === undefined) return true
  if (server.appendOnlyFile === "complete") return false
  // What is in memory can be written again, but not by a server whose folder was taken: it goes on in the folder that it
  // was started in, wherever that is now, and is best left alone until it is back.
  const { process } = server
  const remembers =
    process._tag === "Running" || (process._tag === "Uncontrolled" && process.state !== "lost")
  const folderTaken = server.port === undefined && server.config === undefined
  return folderTaken || !remembers
}

const runOf = ({ process }: RedisServer): string | undefined =>
  process._tag === "Running" ? process.live.runId : undefined

const isAnotherRun = ({ facts }: CacheResource, server: RedisServer): boolean => {
  const run = runOf(server)
  return facts.run !== undefined && run !== undefined && run !== facts.run
}

/**
 * Users learn the password when the cache is ready, and what makes it ready is stored together with these facts: nobody
 * has written anything before.
 */
export const factsOf = (resource: CacheResource, server: RedisServer, ready: boolean): CacheFacts => {
  const run = ready || isAnotherRun(resource, server) ? runOf(server) : undefined
  return {
    ...(resource.spec.persistence === "none" ? { persisted: false } : ready ? { persisted: true } : {}),
    ...(run === undefined ? {} : { run })
  }
}

/** It was ready, and a server that has not read its data anew has taken the place of the one that was. */
export const startedEmpty = (resource: CacheResource, server: RedisServer) =>
  isAnotherRun(resource, server) && !keepsData(resource)
    ? {
        happened: {
          reason: "StartedEmpty",
          message: "The server was started again, and what the cache held in memory is lost"
        }
      }
    : {}
