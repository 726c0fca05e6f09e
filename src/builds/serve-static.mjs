/**
 * Serves a folder of files: what runs in images that were built of static apps, on the Node of the image. Arguments: the
 * folder, and `fallback` if paths without a file are answered with `index.html`.
 */
import { createReadStream } from "node:fs"
import { realpath, stat } from "node:fs/promises"
import { createServer } from "node:http"
import { extname, join, sep } from "node:path"

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
/** Names that hold a digest of their content, as bundlers write them, never stand for anything else. */
const hasDigest = /[.-][A-Za-z0-9_-]{8,}\.[a-z0-9]+$/
const digit = /\d/

const [, , folder = ".", mode] = process.argv
const root = await realpath(folder)

/** The regular file at a path, within the folder also by way of links. */
const fileAt = async (path) => {
  try {
    const file = await realpath(join(root, path))
    if (file !== root && !file.startsWith(root + sep)) return undefined
    const { size, mtimeMs, isFile } = await stat(file).then((one) => ({
      size: one.size,
      mtimeMs: one.mtimeMs,
      isFile: one.isFile()
    }))
    return isFile
      ? { file, size, etag: `"${size.toString(16)}-${Math.floor(mtimeMs).toString(16)}"` }
      : undefined
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
  const lasting = status === 200 && extname(name) !== ".html" && hasDigest.test(name) && digit.test(name)
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
