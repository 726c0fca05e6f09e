/** The control file of a managed cache server: what was assigned to it, and its fence (`fence-file.ts`). */
import * as path from "node:path"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { type FencedTarget, makeFenceFile } from "../host/fence-file.ts"
import type { Host } from "../host/Host.ts"
import { failed, RedisServerError } from "./errors.ts"

/** A server as the reconcile that acts on it knows it. */
export type RedisTarget = FencedTarget

const Assigned = Schema.Struct({
  fence: Schema.BigIntFromString,
  port: Schema.optionalKey(Schema.Int),
  /** File in the server's folder with its certificate and key. */
  certificate: Schema.optionalKey(Schema.String)
})
export type Assigned = typeof Assigned.Type

export const makeControlFiles = (host: Host["Service"], dirOf: (uid: string) => string) => {
  const { read, write, check, claim } = makeFenceFile<Assigned, RedisServerError>({
    host,
    fileOf: (uid) => path.join(dirOf(uid), "server.json"),
    content: Assigned,
    failed,
    refused: (uid) =>
      new RedisServerError({
        reason: "Fenced",
        message: `A later reconcile works on the cache server ${uid}; this one stops`
      }),
    claimName: "redis.claim",
    foldersOf: (uid) => [dirOf(uid)],
    first: (fence) => ({ fence })
  })
  return {
    read,
    check,
    claim,
    assign: Effect.fnUntraced(function* (target: RedisTarget, values: Partial<Omit<Assigned, "fence">>) {
      yield* write(target.uid, { ...(yield* check(target)), ...values })
    })
  }
}
