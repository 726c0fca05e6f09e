/**
 * Images that executions brought to this host, and when one of them used each last. A file for each, in the data folder,
 * by its time: the images are the host's, so what is known of them is as well. An image that was there before anybody
 * asked for it here has no such file and is never touched.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { rangesOf } from "#src/address-ranges.ts"
import { AppConfig } from "#src/config.ts"
import {
  ContainerEngine,
  type ContainerError,
  type PulledImage,
  type PullRequest
} from "#src/infra/containers/ContainerEngine.ts"
import { judgedAddresses } from "#src/outbound/lookup.ts"
import { hostOf, isListed, parseImage } from "./image.ts"
import { makeFetchImage } from "./registry/fetch-image.ts"
import { failed } from "./registry/requests.ts"
import { settings } from "./settings.ts"

/** Images that one pass lets go of at most, so that an engine is never kept busy with it. */
const mostAtOnce = 20
const dayMs = 86_400_000

const Record = Schema.fromJsonString(Schema.Struct({ id: Schema.String, names: Schema.Array(Schema.String) }))
type Record = typeof Record.Type
const decode = Schema.decodeUnknownEffect(Record)
const encode = Schema.encodeSync(Record)

export class Images extends Context.Service<
  Images,
  {
    /** Fetches an image and notes that it was, unless it was there already and not by us. */
    readonly pull: (request: PullRequest, stallMs: number) => Effect.Effect<PulledImage, ContainerError>
    /**
     * The same for one that a user names. The engine fetches it from registries that `SVC_REGISTRIES` lists; any other
     * may send its clients to addresses that only this machine reaches, so that it is asked by requests that are judged.
     */
    readonly pullNamed: (request: PullRequest, stallMs: number) => Effect.Effect<PulledImage, ContainerError>
    /** Notes that an image that was made here is ours, and needed. */
    readonly keep: (id: string, name: string) => Effect.Effect<void>
    /** Notes that an image that we fetched is needed still, so that it does not go by its age. */
    readonly use: (id: string) => Effect.Effect<void>
    /** Lets go of an image that we fetched, unless a container is made of it. True: we keep it no more. */
    readonly release: (id: string) => Effect.Effect<boolean, ContainerError>
    /** Lets go of those that nobody asked for lately. Answers how many are gone. */
    readonly prune: Effect.Effect<number, ContainerError>
  }
>()("svc/executions/Images") {
  static readonly layer = Layer.effect(
    Images,
    Effect.gen(function* () {
      const engine = yield* ContainerEngine
      const { dataDir, outboundAllow } = yield* AppConfig
      const { imageDays, registries } = yield* settings
      const allowed = rangesOf(outboundAllow)
      const fetchImage = makeFetchImage(engine)
      const folder = path.join(dataDir, "images")
      const fileOf = (id: string) => path.join(folder, createHash("sha256").update(bare(id)).digest("hex"))
      const file = <A>(body: () => Promise<A>) => Effect.option(Effect.tryPromise(body))
      const recordIn = (file: string) =>
        Effect.option(
          Effect.flatMap(
            Effect.tryPromise(() => fs.readFile(file, "utf8")),
            decode
          )
        )

      const note = Effect.fnUntraced(function* (id: string, name: string, isNew: boolean) {
        const at = fileOf(id)
        const known = yield* recordIn(at)
        if (known._tag === "None" && !isNew) return
        const names = new Set(known._tag === "None" ? [] : known.value.names).add(name)
        // Whole or not at all; its time is now.
        const draft = `${at}.${process.pid}`
        yield* file(async () => {
          await fs.mkdir(folder, { recursive: true, mode: 0o700 })
          await fs.writeFile(draft, encode({ id: bare(id), names: [...names] }), { mode: 0o600 })
          await fs.rename(draft, at)
        })
      })

      const letGo = Effect.fnUntraced(function* (at: string, oldest: number) {
        // Taken out of the way first: whoever fetches the image from here on notes it anew.
        const taken = `${at}.going`
        yield* file(() => fs.rename(at, taken))
        const stat = yield* file(() => fs.stat(taken))
        const record = yield* recordIn(taken)
        if (stat._tag === "None" || record._tag === "None") return false
        const back = file(() => fs.link(taken, at))
        const done =
          stat.value.mtimeMs > oldest
            ? "used"
            : yield* Effect.onError(
                engine.removeImage(record.value.id, (name) => isOneOf(record.value, name)),
                () => back
              )
        const now = (yield* Clock.currentTimeMillis) / 1000
        if (done === "used") {
          // A container is made of it: asked again when it is old anew.
          if (stat.value.mtimeMs <= oldest) yield* file(() => fs.utimes(taken, now, now))
          yield* back
        }
        yield* file(() => fs.rm(taken, { force: true }))
        return done !== "used"
      })

      const noting = Effect.fnUntraced(function* <E>(
        reference: string,
        fetching: Effect.Effect<PulledImage, E>
      ) {
        const before = yield* engine.images
        const image = yield* fetching
        yield* note(image.id, reference, !before.has(bare(image.id)))
        return image
      })

      return Images.of({
        pull: Effect.fn("Images.pull")((request, stallMs) =>
          noting(request.reference, engine.pull(request, stallMs))
        ),
        pullNamed: Effect.fn("Images.pullNamed")(function* (request, stallMs) {
          const image = parseImage(request.reference)
          if (image === undefined)
            return yield* failed(`${request.reference} was not found: it names no image`)
          yield* Effect.mapError(judgedAddresses(hostOf(image), allowed), ({ message }) => failed(message))
          const isVouchedFor = request.credentials !== undefined || isListed(image.registry, registries)
          return yield* noting(
            request.reference,
            isVouchedFor ? engine.pull(request, stallMs) : fetchImage(image, { allowed, stallMs })
          )
        }),
        keep: (id, name) => note(id, name, true),
        use: Effect.fn("Images.use")(function* (id) {
          const now = (yield* Clock.currentTimeMillis) / 1000
          yield* file(() => fs.utimes(fileOf(id), now, now))
        }),
        release: Effect.fn("Images.release")(function* (id) {
          const known = yield* file(() => fs.stat(fileOf(id)))
          // Somebody else's: it was never ours to let go of.
          return known._tag === "None" || (yield* letGo(fileOf(id), Number.POSITIVE_INFINITY))
        }),
        prune: Effect.gen(function* () {
          const oldest = (yield* Clock.currentTimeMillis) - imageDays * dayMs
          const files = yield* Effect.orElseSucceed(
            Effect.tryPromise(() => fs.readdir(folder)),
            (): Array<string> => []
          )
          const aged: Array<{ readonly at: string; readonly usedAt: number }> = []
          for (const name of files) {
            // What a process left that was killed while it took one out of the way is taken up again.
            const at = path.join(folder, name.replace(/\.going$/, ""))
            if (name.endsWith(".going")) {
              yield* file(() => fs.link(path.join(folder, name), at))
              yield* file(() => fs.rm(path.join(folder, name), { force: true }))
            } else if (name.includes(".")) continue
            const stat = yield* file(() => fs.stat(at))
            if (stat._tag === "Some" && stat.value.mtimeMs <= oldest)
              aged.push({ at, usedAt: stat.value.mtimeMs })
          }
          let count = 0
          for (const { at } of aged.sort((a, b) => a.usedAt - b.usedAt).slice(0, mostAtOnce))
            if (yield* letGo(at, oldest)) count++
          return count
        }).pipe(Effect.withSpan("Images.prune"))
      })
    })
  )
}

/** Engines write names in their own way, so they are compared in the complete one. */
const isOneOf = ({ names }: Record, name: string): boolean => {
  const canonical = parseImage(name)?.canonical
  return canonical !== undefined && names.includes(canonical)
}

/** Docker writes the algorithm before it, Podman does not. */
const bare = (id: string) => id.replace(/^sha256:/, "")
