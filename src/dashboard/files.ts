/** What was built of the dashboard, read into memory once: it is a megabyte, and a later build changes nothing here. */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import type { Encoding } from "#src/api/accepted-encoding.ts"

export interface BuiltFile {
  readonly contentType: string
  readonly forms: Readonly<Record<"identity", Uint8Array>> &
    Readonly<Partial<Record<Exclude<Encoding, "identity">, Uint8Array>>>
}

export interface Built {
  /** The page, whose addresses are relative to `base`. */
  readonly page: Uint8Array
  readonly pageTag: string
  /** By path below `/app/`. Their names have a digest of their content in them. */
  readonly assets: ReadonlyMap<string, BuiltFile>
}

const dist = fileURLToPath(new URL("../../web/dist", import.meta.url))

const contentTypes: Readonly<Record<string, string>> = {
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".woff2": "font/woff2"
}

const optional = (file: string): Promise<Uint8Array | undefined> =>
  fs.readFile(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined
    throw error
  })

/** Undefined: it was not built. `base` is the path that browsers see it at, with a slash at both ends. */
export const readBuilt = async (base: string, folder = dist): Promise<Built | undefined> => {
  const page = await optional(path.join(folder, "index.html"))
  if (page === undefined) return undefined
  const names = await fs.readdir(path.join(folder, "assets"))
  const assets = await Promise.all(
    names.flatMap((name) => {
      const contentType = contentTypes[path.extname(name)]
      return contentType === undefined ? [] : [readAsset(folder, name, contentType)]
    })
  )
  const html = Buffer.from(page)
    .toString("utf8")
    .replace('<base href="/app/"', () => `<base href="${base}"`)
  return {
    page: Buffer.from(html),
    pageTag: `"${createHash("sha256").update(html).digest("base64url").slice(0, 22)}"`,
    assets: new Map(assets)
  }
}

const readAsset = async (
  folder: string,
  name: string,
  contentType: string
): Promise<readonly [string, BuiltFile]> => {
  const file = path.join(folder, "assets", name)
  const [identity, br, gzip] = await Promise.all([
    fs.readFile(file),
    optional(`${file}.br`),
    optional(`${file}.gz`)
  ])
  const forms = {
    identity,
    ...(br === undefined ? {} : { br }),
    ...(gzip === undefined ? {} : { gzip })
  }
  return [`assets/${name}`, { contentType, forms }]
}
