/**
 * Names of images, by the grammar of the distribution project (github.com/distribution/reference), in the one form in
 * which an engine never has to guess: with the host of the registry, and a tag or a digest.
 */

export interface ImageReference {
  /** Host, and port if it has one, in lower case. Docker Hub is `docker.io` under each of its names. */
  readonly registry: string
  readonly repository: string
  readonly tag: string | undefined
  readonly digest: string | undefined
  /** `registry/repository:tag` or `registry/repository@digest`. */
  readonly canonical: string
}

const hub = "docker.io"
const hubAliases: ReadonlySet<string> = new Set([
  "docker.io",
  "index.docker.io",
  "registry-1.docker.io",
  "registry.hub.docker.com",
  "hub.docker.com"
])

const label = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
const hostPattern = new RegExp(`^(?:${label}(?:\\.${label})*|\\[[0-9a-f:]+\\])(?::[0-9]{1,5})?$`)
const component = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
const repositoryPattern = new RegExp(`^${component}(?:/${component})*$`)
const tagPattern = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/
const digestPattern = /^sha256:[0-9a-f]{64}$/
const longest = 255

/** A registry as people write it, with or without a scheme and a path; undefined: it is none. */
export const registryOf = (text: string): string | undefined => {
  const host = text
    .trim()
    .toLowerCase()
    .replace(/^https?:\/\//, "")
    .replace(/\/.*$/, "")
  if (!hostPattern.test(host)) return undefined
  return hubAliases.has(host) ? hub : host
}

/** What of the first part makes it a host: otherwise it belongs to a name on Docker Hub. */
const looksLikeHost = (part: string) => /[.:]/.test(part) || part === "localhost"

/** Undefined: it names no image. */
export const parseImage = (text: string): ImageReference | undefined => {
  const [rest = "", digest, ...more] = text.split("@")
  if (more.length > 0 || text.length > 2 * longest) return undefined
  const slash = rest.indexOf("/")
  const first = slash === -1 ? "" : rest.slice(0, slash)
  const named = slash !== -1 && looksLikeHost(first)
  const registry = named ? registryOf(first) : hub
  const path = named ? rest.slice(slash + 1) : rest
  const colon = path.lastIndexOf(":")
  const name = colon === -1 ? path : path.slice(0, colon)
  const tag = colon === -1 ? undefined : path.slice(colon + 1)
  if (registry === undefined || !repositoryPattern.test(name)) return undefined
  if (tag !== undefined && !tagPattern.test(tag)) return undefined
  if (digest !== undefined && !digestPattern.test(digest)) return undefined
  const repository = registry === hub && !name.includes("/") ? `library/${name}` : name
  if (registry.length + 1 + repository.length > longest) return undefined
  // What a digest names does not change with the tag.
  const version = digest === undefined ? `:${tag ?? "latest"}` : `@${digest}`
  return { registry, repository, tag, digest, canonical: `${registry}/${repository}${version}` }
}

/** The host without its port and without brackets; for Docker Hub the one that answers. */
export const hostOf = ({ registry }: Pick<ImageReference, "registry">): string =>
  registry === hub ? "registry-1.docker.io" : registry.replace(/:\d+$/, "").replaceAll(/^\[|\]$/g, "")

/** Whether a list such as `ghcr.io, *.pkg.dev` names the registry. A star stands for one label or a part of one. */
export const isListed = (registry: string, list: ReadonlyArray<string>): boolean =>
  list.some((entry) => {
    const pattern = (registryOf(entry.replaceAll("*", "x")) === hub ? hub : entry.toLowerCase())
      .split("*")
      .map((part) => part.replaceAll(/[.[\]]/g, "\\$&"))
      .join("[a-z0-9-]+")
    return new RegExp(`^${pattern}$`).test(registry)
  })
