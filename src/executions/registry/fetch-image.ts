/**
 * Fetches an image from a registry that nobody here has vouched for, by requests of our own, and hands it to the engine as
 * an archive: an engine follows whatever a registry says, to whatever address. All that comes is held against its digest
 * before the engine has seen the end of it.
 */
import { createHash } from "node:crypto"
import { Transform } from "node:stream"
import { pipeline } from "node:stream/promises"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { pack } from "tar-stream"
import type { ContainerEngine, ContainerError, PulledImage } from "#src/infra/containers/ContainerEngine.ts"
import type { ImageReference } from "../image.ts"
import { accepted, type Blob, type Manifest, readDocument } from "./documents.ts"
import { bodyOf, failed, type RegistryOptions, registryRequests } from "./requests.ts"

const manifestBytes = 4 * 1024 * 1024
const configBytes = 8 * 1024 * 1024
/** Of all layers, as they come. */
const imageBytes = 20 * 1024 ** 3

const hexOf = (digest: string) => digest.slice("sha256:".length)
const digestOf = (content: Buffer) => `sha256:${createHash("sha256").update(content).digest("hex")}`

/** Passes on what has this digest and this size, and fails before its end if it has not. */
const verified = ({ digest, size }: Blob) => {
  const hash = createHash("sha256")
  let bytes = 0
  return new Transform({
    transform(chunk: Buffer, _, done) {
      bytes += chunk.length
      hash.update(chunk)
      done(bytes > size ? new Error(`${digest} is longer than the manifest says`) : null, chunk)
    },
    flush(done) {
      const same = bytes === size && `sha256:${hash.digest("hex")}` === digest
      done(same ? null : new Error(`what came for ${digest} has another digest`))
    }
  })
}

export const makeFetchImage = (engine: ContainerEngine["Service"]) =>
  Effect.fnUntraced(function* (
    image: ImageReference,
    options: RegistryOptions
  ): Effect.fn.Return<PulledImage, ContainerError> {
    const { registry, repository } = image
    const host = registry === "docker.io" ? "registry-1.docker.io" : registry
    const requests = registryRequests(host, repository, options)

    const manifestOf = (version: string) =>
      Effect.scoped(
        Effect.gen(function* () {
          const body = yield* bodyOf(yield* requests.manifest(version, accepted), manifestBytes)
          const digest = digestOf(body)
          if (version.startsWith("sha256:") && digest !== version)
            return yield* failed(`what came for the manifest ${version} has another digest`)
          return { digest, read: readDocument(body.toString("utf8")) }
        })
      )

    const find = Effect.gen(function* () {
      yield* requests.begin
      const first = yield* manifestOf(image.digest ?? image.tag ?? "latest")
      const of = first.read?.kind === "index" ? first.read.digest : first.digest
      if (of === undefined) return yield* failed("no matching manifest: the image is of other processors")
      const { read } = first.read?.kind === "index" ? yield* manifestOf(of) : first
      if (read?.kind !== "manifest") return yield* failed(`no such manifest: what ${host} has is no image`)
      return { digest: first.digest, manifest: read.manifest }
    })

    const config = ({ digest, size }: Blob) =>
      Effect.scoped(
        Effect.gen(function* () {
          if (size > configBytes) return yield* failed("the configuration of the image is too large")
          const body = yield* bodyOf(yield* requests.blob(digest), configBytes)
          return digestOf(body) === digest
            ? body
            : yield* failed(`what came for ${digest} has another digest`)
        })
      )

    /** In the form of `docker save`. */
    const load = Effect.fnUntraced(function* ({ config: described, layers }: Manifest, content: Buffer) {
      const archive = pack()
      const description = [
        {
          Config: `${hexOf(described.digest)}.json`,
          RepoTags: image.digest === undefined ? [image.canonical] : [],
          Layers: layers.map(({ digest }) => `${hexOf(digest)}.tar`)
        }
      ]
      const once = new Map(layers.map((layer) => [layer.digest, layer]))
      const feed = Effect.gen(function* () {
        archive.entry({ name: "manifest.json" }, JSON.stringify(description))
        archive.entry({ name: `${hexOf(described.digest)}.json` }, content)
        for (const layer of once.values())
          yield* Effect.scoped(
            Effect.gen(function* () {
              const response = yield* requests.blob(layer.digest)
              yield* Effect.tryPromise({
                try: (signal) => {
                  const entry = archive.entry({ name: `${hexOf(layer.digest)}.tar`, size: layer.size })
                  return pipeline(response, verified(layer), entry, { signal })
                },
                catch: (cause) => failed(cause instanceof Error ? cause.message : String(cause), cause)
              })
            })
          )
        archive.finalize()
      }).pipe(Effect.onError(() => Effect.sync(() => archive.destroy())))
      yield* Effect.all([feed, engine.load(archive)], { concurrency: 2, discard: true })
    })

    return yield* Effect.gen(function* () {
      const { digest, manifest } = yield* find
      const id = hexOf(manifest.config.digest)
      if (manifest.layers.reduce((sum, { size }) => sum + size, 0) > imageBytes)
        return yield* failed(`the image is larger than ${imageBytes / 1024 ** 3} GiB, which is denied`)
      // Whoever has its configuration has the image: a digest alone may be somebody else's, and is no secret.
      const content = yield* config(manifest.config)
      const there = yield* engine.images
      if (!there.has(id)) yield* load(manifest, content)
      // Engines that name images by their manifests find it by its tag only.
      const found = yield* engine.findImage(id)
      const named = Option.isSome(found) ? found : yield* engine.findImage(image.canonical)
      return Option.isSome(named)
        ? { id: named.value, digest }
        : yield* failed("the engine took it in and does not have it")
    }).pipe(
      Effect.mapError((error) =>
        error.reason === "Failed" ? failed(`Fetching the image ${image.canonical}: ${error.message}`) : error
      )
    )
  })
