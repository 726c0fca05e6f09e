/** What a registry says of an image, as far as it is of use (OCI image specification; Docker image manifest, version 2). */
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"

const Digest = Schema.String.check(Schema.isPattern(/^sha256:[0-9a-f]{64}$/))
const Bytes = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

export const Blob = Schema.Struct({ digest: Digest, size: Bytes })
export type Blob = typeof Blob.Type

const Platform = Schema.Struct({ os: Schema.String, architecture: Schema.String })

/** One image for each platform. */
const Index = Schema.Struct({
  manifests: Schema.Array(Schema.Struct({ digest: Digest, platform: Schema.optional(Platform) })).check(
    Schema.isMaxLength(1_000)
  )
})

const Manifest = Schema.Struct({
  config: Blob,
  layers: Schema.Array(Blob).check(Schema.isMaxLength(500))
})
export type Manifest = typeof Manifest.Type

/** What is asked for. */
export const accepted = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.docker.distribution.manifest.v2+json"
].join(", ")

const decodeIndex = Schema.decodeUnknownOption(Schema.fromJsonString(Index))
const decodeManifest = Schema.decodeUnknownOption(Schema.fromJsonString(Manifest))

export const Token = Schema.fromJsonString(
  Schema.Struct({ token: Schema.optional(Schema.String), access_token: Schema.optional(Schema.String) })
)

const architecture = process.arch === "x64" ? "amd64" : process.arch

export type Read =
  | { readonly kind: "manifest"; readonly manifest: Manifest }
  /** Of the image that this machine runs; undefined: there is none. */
  | { readonly kind: "index"; readonly digest: string | undefined }

/** Undefined: it is neither. */
export const readDocument = (text: string): Read | undefined => {
  const index = decodeIndex(text)
  if (Option.isSome(index)) {
    const found = index.value.manifests.find(
      ({ platform }) => platform?.os === "linux" && platform.architecture === architecture
    )
    return { kind: "index", digest: found?.digest }
  }
  return Option.getOrUndefined(
    Option.map(decodeManifest(text), (manifest) => ({ kind: "manifest" as const, manifest }))
  )
}
