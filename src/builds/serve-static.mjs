/**
 * Serves a folder of files: what runs in images that were built of static apps, on the Node of the image. Arguments: the
 * folder, and `fallback` if paths without a file are answered with `index.html`.
 */
import { createHash } from "node:crypto"
import { createReadStream } from "node:fs"
import { realpath, stat } from "node:fs/promises"
import { createServer } from "node:http"
import { extname, join, sep } from "node:path"
import { pipeline } from "node:stream/promises"

const types = {
  ".avif": "image/avif",
  ".css": "text/css; charset=utf-8",
  ".gif": "image/gif",
  ".html": "text/html; charset=utf-8",
  ".ico": "image/x-icon",
  ".jpeg": "image/jpeg",
  ".jpg": "image/jpeg",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".map": "application/json",
  ".mjs": "text/javascript; charset=utf-8",
  ".mp4": "video/mp4",
  ".pdf": "application/pdf",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
  ".wasm": "application/wasm",
  ".webmanifest": "application/manifest+json",
  ".webp": "image/webp",
  ".woff": "font/woff",
  ".woff2": "font/woff2",
  ".xml": "application/xml"
}
/** What bundlers write: names of others, such as a photo's, may look as if they held a digest. */
const bundled = new Set([".css", ".js", ".map", ".mjs", ".wasm", ".woff", ".woff2"])
const digestIn = /[.-](?:([0-9a-f]{8,64})|([A-Za-z0-9]{8}))(?:\.[a-z0-9]{1,6}){1,2}$/

/**
 * Whether a name holds a digest of its content, and so never stands for anything else. It is one in hexadecimal with
 * letters and digits, or eight characters that change between small letters, capitals and digits as words do not. Some
 * digests are not seen as such; those files are asked for anew each time, which costs little.
 */
const hasDigest = (name) => {
  if (!bundled.has(extname(name))) return false
  const [, hexadecimal, other] = digestIn.exec(name) ?? []
  if (hexadecimal !== undefined && /\d/.test(hexadecimal) && /[a-f]/.test(hexadecimal)) return true
  const text = hexadecimal ?? other ?? ""
  const runs = text.match(/[a-z]+|[A-Z]+|\d+/g) ?? []
  return text.length === 8 && /\d/.test(text) && runs.length >= 5
}

const [, , folder = ".", mode] = process.argv
const root = await realpath(folder)

/** By path. Sizes and times tell nothing of the content: images keep none of its times. */
const etags = new Map()
const etagOf = async (file, { size, mtimeMs, ctimeMs }) => {
  const version = `${size} ${mtimeMs} ${ctimeMs}`
  const known = etags.get(file)
  if (known?.version === version) return known.etag
  const hash = createHash("sha256")
  const etag = pipeline(createReadStream(file), hash).then(() => `"${hash.digest("base64url")}"`)
  etags.set(file, { version, etag })
  etag.catch(() => etags.delete(file))
  return etag
}

/** The regular file at a path, within the folder also by way of links. */
const fileAt = async (path) => {
  try {
    const file = await realpath(join(root, path))
    if (file !== root && !file.startsWith(root + sep)) return undefined
    const found = await stat(file)
    return found.isFile() ? { file, size: found.size, etag: await etagOf(file, found) } : undefined
  } catch {
    return undefined
  }
}

const pathOf = (url) => {
  try {
    const path = decodeURIComponent(new URL(url, "http://app").pathname)
    return path.includes("\0") ||
      path.split("/").some((part) => part.startsWith(".") && part !== ".well-known")
      ? undefined
      : path
  } catch {
    return undefined
  }
}

const find = async (path) => {
  const candidates = path.endsWith("/") ? [`${path}index.html`] : [path, `${path}.html`, `${path}/index.html`]
  for (const candidate of candidates) {
    const found = await fileAt(candidate)
    if (found !== undefined) return { ...found, status: 200 }
  }
  const page = await fileAt(mode === "fallback" && extname(path) === "" ? "index.html" : "404.html")
  return page === undefined
    ? undefined
    : { ...page, status: mode === "fallback" && extname(path) === "" ? 200 : 404 }
}

const server = createServer(async (request, response) => {
  if (request.method !== "GET" && request.method !== "HEAD")
    return response.writeHead(405, { allow: "GET, HEAD" }).end()
  const path = pathOf(request.url ?? "/")
  const found = path === undefined ? undefined : await find(path)
  if (found === undefined) return response.writeHead(404, { "content-type": "text/plain" }).end("Not found\n")
  const { file, size, etag, status } = found
  const name = file.slice(file.lastIndexOf(sep) + 1)
  const lasting = status === 200 && hasDigest(name)
  const headers = {
    "cache-control": lasting ? "public, max-age=31536000, immutable" : "no-cache",
    etag,
    "x-content-type-options": "nosniff"
  }
  if (status === 200 && request.headers["if-none-match"] === etag)
    return response.writeHead(304, headers).end()
  response.writeHead(status, {
    ...headers,
    "content-length": size,
    "content-type": types[extname(name).toLowerCase()] ?? "application/octet-stream"
  })
  if (request.method === "HEAD") return response.end()
  createReadStream(file)
    .once("error", () => response.destroy())
    .pipe(response)
})
server.listen(Number(process.env["PORT"] ?? 8080), "0.0.0.0")
process.once("SIGTERM", () => {
  server.close(() => process.exit(0))
  server.closeIdleConnections()
})
