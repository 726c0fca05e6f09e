/**
 * The control file beside a managed server: what was assigned to it, and the fencing number of the latest reconcile
 * that began to work on it.
 *
 * A reconcile claims the server before its first act and is checked again before each one, so a process that stalled
 * past its lease finds a higher number there and is refused. Between a check and its act lie microseconds: the fence
 * stops processes that stalled, it is no lock, and the lease in the store keeps two from working at once.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { externalCall } from "#src/engine/external-call.ts"
import type { Host, HostError } from "./Host.ts"

/** A server as the reconcile that acts on it knows it. */
export interface FencedTarget {
  readonly uid: string
  readonly fence: bigint
}

interface Options<Content extends { readonly fence: bigint }, Failure> {
  readonly host: Host["Service"]
  readonly fileOf: (uid: string) => string
  readonly content: Schema.Codec<Content, Schema.Json>
  /** How a failure of the machine is told. */
  readonly failed: (error: HostError) => Failure
  /** What a reconcile is told that is not the latest one. */
  readonly refused: (uid: string) => Failure
  /** Names the claim in the log of outside calls. */
  readonly claimName: string
  /** Folders that a server must have before it is claimed. */
  readonly foldersOf: (uid: string, now: Content | undefined) => ReadonlyArray<string>
  /** The content of a file that claims a server for the first time. */
  readonly first: (fence: bigint) => Content
}

export const makeFenceFile = <Content extends { readonly fence: bigint }, Failure>(
  options: Options<Content, Failure>
) => {
  const { host, fileOf, failed, refused } = options
  const Text = Schema.fromJsonString(options.content)

  /** Undefined: nobody claimed the server yet. A file that cannot be understood counts as none: all is assigned anew. */
  const read = Effect.fnUntraced(function* (uid: string) {
    const text = yield* Effect.mapError(host.readFile(fileOf(uid)), failed)
    if (Option.isNone(text)) return undefined
    return Option.getOrUndefined(yield* Effect.option(Schema.decodeUnknownEffect(Text)(text.value)))
  })

  const write = (uid: string, content: Content): Effect.Effect<void, Failure> =>
    Effect.flatMap(Effect.orDie(Schema.encodeEffect(Text)(content)), (text) =>
      Effect.mapError(host.writeFile(fileOf(uid), text), failed)
    )

  /** Fails unless `target` is the latest reconcile that claimed the server. */
  const check = Effect.fnUntraced(function* ({ uid, fence }: FencedTarget) {
    const now = yield* read(uid)
    if (now === undefined || now.fence !== fence) return yield* Effect.fail(refused(uid))
    return now
  })

  /** Makes `target` the latest reconcile of the server, unless a later one was there before. */
  const claim = Effect.fnUntraced(function* ({ uid, fence }: FencedTarget) {
    const now = yield* read(uid)
    if (now?.fence === fence) return
    if (now !== undefined && now.fence > fence) return yield* Effect.fail(refused(uid))
    yield* externalCall(
      options.claimName,
      "write"
    )(
      Effect.gen(function* () {
        for (const folder of options.foldersOf(uid, now)) {
          yield* Effect.mapError(host.directory(folder), failed)
        }
        yield* write(uid, now === undefined ? options.first(fence) : { ...now, fence })
      })
    )
  })

  return { read, write, check, claim }
}
